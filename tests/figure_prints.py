"""A figure as a hash of all that it draws, equal for figures that are bit-equal; its caption is no part of it."""

from __future__ import annotations

import dataclasses
import hashlib
from typing import Any

import numpy as np

from circuitlab.figures.marks import Figure


def figure_print(figure: Figure) -> str:
    """The hash of title, marks and what the figure is about."""
    digest = hashlib.sha256()
    _add(digest, (figure.title, figure.grid, figure.shown, figure.why_empty, figure.about))
    return digest.hexdigest()


def _add(digest: Any, value: Any) -> None:
    if isinstance(value, np.ndarray):
        digest.update(f"{value.dtype}{value.shape}".encode())
        digest.update(repr(value.tolist()).encode() if value.dtype.kind == "O" else np.ascontiguousarray(value).tobytes())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        digest.update(type(value).__name__.encode())
        for field in dataclasses.fields(value):
            _add(digest, (field.name, getattr(value, field.name)))
    elif isinstance(value, dict):
        _add(digest, tuple(value.items()))
    elif isinstance(value, (tuple, list)):
        digest.update(f"[{len(value)}".encode())
        for one in value:
            _add(digest, one)
    elif not callable(value):
        digest.update(repr(value).encode("utf-8", "backslashreplace"))
