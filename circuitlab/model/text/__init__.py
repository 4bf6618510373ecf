"""Text to token ids and back, by rules that cannot hang or fill the memory."""
