"""States into files, without a window."""
