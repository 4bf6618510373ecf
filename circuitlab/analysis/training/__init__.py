"""What was measured along a training."""
