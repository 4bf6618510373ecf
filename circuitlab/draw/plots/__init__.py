"""Marks with two axes, made with pyqtgraph: curves, points, graphs."""
