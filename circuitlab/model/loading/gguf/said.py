"""What a GGUF file says of its architecture: typed values under `ARCH.KEY`, floats as they were before they became float32."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.gguf.header import Header
from circuitlab.model.loading.assumptions import Assumed

_NEEDED: Any = object()
_MOST_LAYERS = 10_000


class Said:
    """The keys of one file; `ask` collects assumptions about what it does not say."""

    def __init__(self, header: Header, ask: Assumed) -> None:
        self.header, self.ask = header, ask
        self.architecture = self.text("general.architecture")

    def text(self, key: str, default: str = "") -> str:
        """A text under its whole key. Raises `BadModel`."""
        value = self.header.metadata.get(key, default)
        if not isinstance(value, str) or len(value) > 200:
            raise self._bad(key, "a short text", value)
        return value

    def has(self, key: str) -> bool:
        """Whether the architecture's key is there."""
        return self._key(key) in self.header.metadata

    def value(self, key: str, default: object = None) -> Any:
        """A value as it was read."""
        return self.header.metadata.get(self._key(key), default)

    def size(self, key: str, default: int = _NEEDED) -> int:
        """A whole number, also where an array has it once for each layer. Raises `BadModel`."""
        value = self._one(key, default)
        if not isinstance(value, int | np.integer) or isinstance(value, bool) or not 0 <= value < 2**40:
            raise self._bad(self._key(key), "a whole number", value)
        return int(value)

    def number(self, key: str, default: float = _NEEDED) -> float:
        """A finite number: 0.1 where the file has the float32 nearest to it. Raises `BadModel`."""
        value = self._one(key, default)
        if not isinstance(value, int | float | np.number) or isinstance(value, bool) or not math.isfinite(value):
            raise self._bad(self._key(key), "a finite number", value)
        return plain(float(value))

    def flag(self, key: str, default: bool) -> bool:
        """True or false. Raises `BadModel`."""
        value = self.header.metadata.get(self._key(key), default)
        if not isinstance(value, bool):
            raise self._bad(self._key(key), "true or false", value)
        return value

    @property
    def n_layers(self) -> int:
        """Blocks of the model itself, without those that predict further tokens."""
        n = self.size("block_count") - self.size("nextn_predict_layers", 0)
        if not 0 <= n <= _MOST_LAYERS:
            raise self._bad(self._key("block_count"), f"at most {_MOST_LAYERS:,} layers", n)
        return n

    def tensor(self, name: str) -> bool:
        """Whether the file has a tensor of this name."""
        return name in self.header.tensors

    def rows(self, *names: str) -> int:
        """The rows of the first of these tensors that the file has. Raises `BadModel` where it has none."""
        return self._axis(names, 0)

    def columns(self, *names: str) -> int:
        """The columns of the first of these tensors that the file has. Raises `BadModel` where it has none."""
        return self._axis(names, -1)

    def _axis(self, names: tuple[str, ...], axis: int) -> int:
        result = next((self.header.tensors[name] for name in names if name in self.header.tensors), None)
        if result is None or not result.shape:
            raise BadModel(f"{self.header.name} lacks a tensor.", expected=" or ".join(names), got="none of that name")
        return result.shape[axis]

    def _one(self, key: str, default: object) -> object:
        value = self.header.metadata.get(self._key(key), default)
        if isinstance(value, np.ndarray):
            if not value.size or bool((value != value[0]).any()):
                raise self._bad(self._key(key), "the same in every layer", value[:8].tolist())
            return value[0]
        if value is _NEEDED:
            raise self._bad(self._key(key), "a number", "nothing")
        return value

    def _key(self, key: str) -> str:
        return f"{self.architecture}.{key}"

    def _bad(self, key: str, expected: str, got: object) -> BadModel:
        shown = "nothing" if got == "nothing" else quoted(got)
        return BadModel(f"{self.header.name}: {key} cannot be read.", expected=expected, got=shown)


def plain(value: float) -> float:
    """The shortest number whose float32 is this one."""
    return float(str(np.float32(value))) if abs(value) < 3e38 else value
