"""One tick: observe → decide → reconcile → execute → record."""
