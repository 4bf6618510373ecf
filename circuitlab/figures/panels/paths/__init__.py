"""The panel Paths: the path expansion of a prediction."""
