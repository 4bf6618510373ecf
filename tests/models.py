"""Small models for tests: those of the kit that plug-ins are tested by, too."""

from circuitlab.model.saving import random_tensors
from circuitlab.testing.models import CONFIGS, FULL, TINY, byte_tokenizer, directory, weights_of

__all__ = ["CONFIGS", "FULL", "TINY", "byte_tokenizer", "directory", "random_tensors", "weights_of"]
