"""Weights on a device: each layer is read and moved there on access.

Nothing is cached here. Weights are moved as they are stored (bfloat16 halves the transfer) and converted there: `FoldedWeights`
on top caches what it has folded of a resident model, so that such a model is moved once.
"""

from __future__ import annotations

from typing import TypeVar

import torch

from circuitlab.model.config import ModelConfig
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import Embed, Layer, Mlp, Unembed, Unread, Weights, mapped, parameters_of

T = TypeVar("T")


class WeightsOnDevice:
    """`raw`, every tensor of it on `device`."""

    def __init__(self, raw: Weights, device: str) -> None:
        self.raw, self.device = raw, torch.device(device)

    @property
    def config(self) -> ModelConfig:
        """The raw model's."""
        return self.raw.config

    @property
    def tokenizer(self) -> Tokenizer | None:
        """The raw model's."""
        return self.raw.tokenizer

    @property
    def resident(self) -> bool:
        """The raw model's."""
        return self.raw.resident

    @property
    def n_parameters(self) -> int:
        """The raw model's."""
        return parameters_of(self.raw)

    def embed(self) -> Embed:
        """The embeddings."""
        with torch.device("cpu"):  # the caller may create its tensors elsewhere; files are read into memory
            part = self.raw.embed()
        return moved(part, self.device)

    def layer(self, i: int, mlp: bool = True) -> Layer:
        """Block i."""
        with torch.device("cpu"):
            part = self.raw.layer(i, mlp)
        return moved(part, self.device)

    def unembed(self) -> Unembed:
        """The final norm and the unembedding."""
        with torch.device("cpu"):
            part = self.raw.unembed()
        return moved(part, self.device)


def moved(part: T, device: torch.device) -> T:
    """A part of a model with every tensor on `device`; experts each when a token is sent to it."""
    experts = lambda unread: Unread(len(unread), lambda e: _read(unread, e, device), keep=True)
    return mapped(part, lambda x: x.to(device), experts)


def _read(experts: Unread, e: int, device: torch.device) -> Mlp:
    with torch.device("cpu"):  # as above: files are read into memory
        expert = experts[e]
    return moved(expert, device)
