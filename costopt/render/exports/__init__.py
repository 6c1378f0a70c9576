"""What other programs read: FOCUS and GHG exports."""
