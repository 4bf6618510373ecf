"""What a transformer is: configuration, weights, tokenizer, forward pass, interventions, loading."""
