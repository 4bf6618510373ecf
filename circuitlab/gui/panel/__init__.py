"""A dock for any registered panel: its controls, its figure, what can be done with it."""
