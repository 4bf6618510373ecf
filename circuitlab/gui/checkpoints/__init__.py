"""The bar for the checkpoints of a training run."""
