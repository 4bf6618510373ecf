"""The panel Models side by side: the same text through several models."""
