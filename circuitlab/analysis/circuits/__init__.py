"""What weights say in tokens: OV and QK circuits, the direct path, products with embedding and unembedding."""
