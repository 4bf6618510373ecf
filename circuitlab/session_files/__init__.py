"""The session and its files: where one stands, a story, notes, and the models they are about, as `.circuitlab` text and back."""
