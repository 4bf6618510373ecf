"""Whether a model is what it is taken for: its facts, its rotations, its basis."""
