"""Controls and labels that Qt has not."""
