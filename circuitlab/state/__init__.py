"""Everything a person has chosen: the State, its history, and what can be ablated or patched where one points."""
