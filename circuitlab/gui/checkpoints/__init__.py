"""The bar over the checkpoints of a training."""
