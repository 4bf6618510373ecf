"""Files of llama.cpp (GGUF): the header, the kinds of tensors, and tensors dequantised when they are read."""
