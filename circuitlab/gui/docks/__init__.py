"""Docks that are widgets of their own kind (prompt, model, log, jobs); each talks only to the Document."""
