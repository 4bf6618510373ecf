"""What is known of a model beside its weights: checkpoint series, measures of its training, corpus bigrams, published heads."""
