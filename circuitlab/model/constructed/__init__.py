"""Models computed from parameters rather than read from files: `construct:rope-induction?alpha=20`.

They are ordinary `Weights` with an ordinary `ModelConfig`, so that every analysis and panel works on them.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from torch import Tensor

from circuitlab.errors import CircuitLabError
from circuitlab.model.config import ModelConfig
from circuitlab.model.constructed.card import card, notes
from circuitlab.model.constructed.matrices import configuration, tensors
from circuitlab.model.constructed.parameters import NAME, RopeInduction
from circuitlab.model.constructed.tokenizer import letter_tokenizer
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights
from circuitlab.model.origin import Constructed

SOURCES = (str(Constructed(NAME)),)


@dataclass(frozen=True)
class Built:
    """A constructed model. `source`: its canonical reference; `sha256`: the hash of its tensors, ordered by name."""

    source: str
    weights: LazyWeights
    card: str
    notes: tuple[str, ...]
    nbytes: int
    sha256: str


def build(p: RopeInduction) -> Built:
    """The model with these parameters."""
    config, named_tensors = configuration(p), tensors(p)
    weights = LazyWeights(config, letter_tokenizer(p.letters), CanonicalParts(config, ResidentTensors(named_tensors)))
    size = sum(x.nbytes for x in named_tensors.values())
    return Built(str(Constructed(str(p))), weights, card(p), notes(p), size, _sha256(named_tensors))


def _sha256(named_tensors: dict[str, Tensor]) -> str:
    digest = hashlib.sha256()
    for name, value in sorted(named_tensors.items()):
        digest.update(f"{name} {tuple(value.shape)} {value.dtype}\n".encode())
        digest.update(value.numpy().tobytes())
    return digest.hexdigest()


def named(text: str) -> bool:
    """Whether `text` is the short name of a constructed model, with or without parameters: `rope-induction?alpha=20`."""
    return text.partition("?")[0] == NAME


def parameters_of(config: ModelConfig) -> RopeInduction | None:
    """The parameters of a constructed model or a saved copy of one; None for any other model."""
    try:
        p = RopeInduction.parse(config.family)
    except CircuitLabError:
        return None
    return p if configuration(p) == config else None


__all__ = ["NAME", "SOURCES", "Built", "RopeInduction", "build", "named", "parameters_of"]
