"""CircuitLab: a desktop laboratory for the mathematical framework of transformer circuits."""

__version__ = "0.1.0"
