"""Training a model from the window."""
