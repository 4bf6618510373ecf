"""Deliberate breaks of important lines, each of which the tests of its own room must notice: `make mutants`."""
