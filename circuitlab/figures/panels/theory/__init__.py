"""The panel of theory against measurement."""
