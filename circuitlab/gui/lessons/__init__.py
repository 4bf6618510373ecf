"""Lessons in the window: the list, the page, the walk."""
