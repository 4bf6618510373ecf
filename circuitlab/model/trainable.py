"""Weights in training: the `Weights` interface over leaf tensors that require gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.lazy_weights import CanonicalParts, LazyWeights


class TrainableWeights(LazyWeights):
    """`Weights` whose canonical tensors are leaves of autograd; `tensors` holds them by name."""

    def __init__(self, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
        self.tensors = {name: value.detach().clone().requires_grad_() for name, value in tensors.items()}
        super().__init__(config, None, CanonicalParts(config, ResidentTensors(self.tensors)))

    def snapshot(self, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
        """A detached copy of every tensor."""
        return {name: value.detach().to(dtype, copy=True) for name, value in self.tensors.items()}
