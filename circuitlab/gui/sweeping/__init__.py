"""A sweep from the window: declared from a panel, run as a process of its own, its table drawn."""
