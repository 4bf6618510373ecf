"""What heads attend to: patterns, summaries of all heads, scores of heads and their definitions."""
