"""An example plug-in of CircuitLab."""
