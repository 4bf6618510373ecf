"""The document and what works on it: questions to the engine, models on their way, work ahead of time."""
