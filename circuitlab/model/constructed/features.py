"""How each variant represents the letters: their embedding, the features read from it, the codes that layer 1 compares.

Features [token, feature] are the image of an embedding [token, width] under a linear map [width, feature] (`feature_map`): the
token itself (one-hot), or (sin φ, cos φ) of its angle φ = (place in the alphabet) · π/13. Layer 1 compares codes [token, rank]:
the product of two codes is largest for equal tokens. The code of BOS is 0.
"""

from __future__ import annotations

import math

import numpy as np

from circuitlab.model.constructed.parameters import STEP, RopeInduction

WIDTH = 32  # of the sinusoidal embedding, which spans two dimensions


def embedding(p: RopeInduction) -> np.ndarray:
    """[token, width] float64: one-hot; or ½ sin(φ + 0.1 j) for letters and 0 for BOS."""
    if p.variant == "one-hot":
        return np.eye(p.d_vocab)
    waves = 0.5 * np.sin(STEP * np.arange(p.letters)[:, None] + 0.1 * np.arange(WIDTH))
    return np.vstack([np.zeros(WIDTH), waves])


def feature_map(p: RopeInduction) -> np.ndarray:
    """[width, feature] float64: `embedding @ feature_map` gives the features.

    ½ sin(φ + 0.1 j) = ½ (sin φ · cos 0.1 j + cos φ · sin 0.1 j): a plane, from which the pseudo-inverse recovers both numbers.
    """
    if p.variant == "one-hot":
        return np.eye(p.d_vocab)
    j = 0.1 * np.arange(WIDTH)
    return 2 * np.linalg.pinv(np.stack([np.cos(j), np.sin(j)]))


def features(p: RopeInduction) -> np.ndarray:
    """[token, feature] float64 in closed form: the identity, or (sin φ, cos φ) and 0 for BOS."""
    if p.variant == "one-hot":
        return np.eye(p.d_vocab)
    angle = STEP * np.arange(p.letters)
    return np.vstack([np.zeros(2), np.stack([np.sin(angle), np.cos(angle)], axis=1)])


def code_map(p: RopeInduction) -> np.ndarray:
    """[feature, rank] float64: `features @ code_map` gives the codes.

    In the plane: both numbers, or the cosine alone. One-hot letters below full rank: cos and sin of as many waves around the
    alphabet as fit in the rank, so that equal letters score highest.
    """
    if p.variant != "one-hot":
        return np.eye(2) if p.variant == "sinusoidal" and p.rank != 1 else np.array([[0.0], [1.0]])
    if p.rank in (0, p.letters):
        return np.vstack([np.zeros(p.letters), np.eye(p.letters)])
    angle = 2 * math.pi / p.letters * np.arange(p.letters)[:, None]
    waves = np.arange(p.rank) // 2 + 1
    shifts = np.where(np.arange(p.rank) % 2 == 0, 0.0, -math.pi / 2)
    code = np.cos(waves * angle + shifts) / math.sqrt((p.rank + 1) // 2)
    return np.vstack([np.zeros(p.rank), code])


def codes(p: RopeInduction) -> np.ndarray:
    """[token, rank] float64: the codes that layer 1 compares."""
    return features(p) @ code_map(p)


def output_features(p: RopeInduction) -> np.ndarray:
    """[token, feature] float64: the features that layer 1 moves to the output; BOS carries nothing."""
    values = features(p)
    values[0] = 0
    return values
