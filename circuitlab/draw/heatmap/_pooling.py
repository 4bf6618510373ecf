"""Levels of detail of a map that has more cells than there are pixels."""

from __future__ import annotations

import numpy as np


def pooled(values: np.ndarray) -> np.ndarray:
    """[ceil(r/2), ceil(c/2)]: of each 2 × 2 block the entry of the largest magnitude, NaN only where all are.

    Of colours [r, c, 3] the darkest.
    """
    rows, cols = values.shape[:2]
    pad = [(0, rows % 2), (0, cols % 2)] + [(0, 0)] * (values.ndim - 2)
    if values.ndim == 3:
        v = np.pad(values, pad, mode="edge")
        return np.minimum(np.minimum(v[::2, ::2], v[1::2, ::2]), np.minimum(v[::2, 1::2], v[1::2, 1::2]))
    v = np.pad(values, pad, constant_values=np.nan)
    parts = (v[::2, ::2], v[1::2, ::2], v[::2, 1::2], v[1::2, 1::2])
    high = np.fmax(np.fmax(parts[0], parts[1]), np.fmax(parts[2], parts[3]))
    low = np.fmin(np.fmin(parts[0], parts[1]), np.fmin(parts[2], parts[3]))
    return np.where(-low > high, low, high)
