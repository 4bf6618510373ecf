"""Along a training."""
