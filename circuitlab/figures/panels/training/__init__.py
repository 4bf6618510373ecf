"""The panel Training: measurements along the checkpoints of a training."""
