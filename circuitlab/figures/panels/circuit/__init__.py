"""Keep only this circuit."""
