"""The layout of the docks: arrangements, one panel maximised, and the saved layout."""
