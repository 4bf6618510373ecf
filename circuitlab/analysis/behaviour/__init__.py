"""What a model does on text, however it does it: losses, predictions, scores over prompts, models side by side."""
