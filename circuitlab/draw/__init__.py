"""Marks on the screen and on paper: `FigureView` (pyqtgraph) and `export` (PNG, SVG, PDF). Qt begins here."""
