"""Where a model's files are: references, the Hugging Face hub's cache, downloads into it."""
