"""Stories: steps in their order. A step sets up the window in words; the words and a State are turned into one another."""
