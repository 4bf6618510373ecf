"""Text to token ids and back, by rules that can neither hang nor exhaust the memory."""
