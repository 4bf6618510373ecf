"""What every picture is drawn with: theme, colours, plain text, keys to colours, and the values of a figure on paper."""
