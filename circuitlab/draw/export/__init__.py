"""A figure as a file: PNG, SVG, PDF."""
