"""Tables on the screen and on paper."""
