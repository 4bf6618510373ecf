"""Paths of a prediction."""
