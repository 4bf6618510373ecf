"""How heads compose: scores, virtual weights, virtual heads, shared subspaces."""
