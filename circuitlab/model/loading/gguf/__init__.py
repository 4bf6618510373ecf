"""GGUF files as Hugging Face folders: a configuration, tensors under Hugging Face's names, a tokenizer, all from one file."""
