"""Measurements along the training of models."""
