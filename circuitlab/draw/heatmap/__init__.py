"""Maps of cells."""
