"""Presenting: a stage for an audience."""
