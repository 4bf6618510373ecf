"""Lessons: Markdown files that set up the window step by step and explain it, with numbers that the engine computes."""
