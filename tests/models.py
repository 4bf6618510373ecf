"""Small models for tests: those of the kit that plug-ins are tested by, too."""

from pathlib import Path

from tokenizers import Tokenizer as Inner

from circuitlab.model.saving import random_tensors
from circuitlab.testing.models import CONFIGS, FULL, TINY, byte_tokenizer, directory, weights_of

__all__ = ["CONFIGS", "FULL", "TINY", "byte_tokenizer", "directory", "random_tensors", "weights_of", "with_special"]


def with_special(folder: Path, *spellings: str) -> Path:
    """A model's folder whose tokenizer has more special tokens, from id 257 on."""
    inner = Inner.from_file(str(folder / "tokenizer.json"))
    inner.add_special_tokens(list(spellings))
    inner.save(str(folder / "tokenizer.json"))
    return folder
