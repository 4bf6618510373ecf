"""The induction laboratory."""
