"""Marks that are painted line by line in an area that scrolls: text, bars, dials, prose."""
