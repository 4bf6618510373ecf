"""Checks of a model: its facts, its rotation invariance, its privileged basis, its closed forms."""
