"""The ground floor: where files lie, what they are called, and how they are written and locked."""
