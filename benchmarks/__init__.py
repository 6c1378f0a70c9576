"""Figures that the documentation quotes; they are printed and asserted nowhere."""
