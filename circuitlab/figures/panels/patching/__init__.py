"""Patching from another prompt."""
