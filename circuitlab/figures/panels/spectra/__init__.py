"""Spectra of heads."""
