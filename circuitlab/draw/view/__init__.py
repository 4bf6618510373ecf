"""A whole figure: which widget draws which mark, where they stand, title and caption."""
