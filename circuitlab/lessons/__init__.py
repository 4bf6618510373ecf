"""Lessons: Markdown files that set the window, step by step, and say what to look at, with numbers that the engine computes."""
