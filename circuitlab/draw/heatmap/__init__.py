"""Heatmaps."""
