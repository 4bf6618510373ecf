"""Mutated model files, opened one after the other by a warm worker: each opens or gives a typed error, in time and in bounds."""
