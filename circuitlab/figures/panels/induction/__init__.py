"""Induction, with its picture in the text."""
