"""Other sets of the same size as a circuit, which say what a set does that was not chosen."""

from __future__ import annotations

from itertools import combinations
from math import comb

import numpy as np

FEW = 4  # times as many sets as are drawn: no more are written down and picked from


def n_others(of: int, size: int) -> int:
    """How many sets of `size` out of `of` there are besides one."""
    return comb(of, size) - 1


def other_sets(circuit: np.ndarray, of: int, samples: int, seed: int) -> np.ndarray:
    """[sample, size] indices below `of`: sets of the circuit's size, each sorted, none of them the circuit, no two alike.

    `circuit` [size]: sorted indices. All such sets, in their order, where there are no more than `samples`; otherwise as many,
    drawn uniformly without replacement.
    """
    size, rng = len(circuit), np.random.default_rng(seed)
    others = n_others(of, size)
    if others > FEW * samples:
        return _drawn(circuit, of, samples, rng)
    ranks = np.arange(others) if others <= samples else rng.permutation(others)[:samples]
    place = {int(rank): i for i, rank in enumerate(ranks)}
    sets, own = np.zeros((len(ranks), size), dtype=np.int64), tuple(circuit.tolist())
    for rank, one in enumerate(one for one in combinations(range(of), size) if one != own):
        if rank in place:
            sets[place[rank]] = one
    return sets


def _drawn(circuit: np.ndarray, of: int, samples: int, rng: np.random.Generator) -> np.ndarray:
    """Sets out of many: whatever has come before, or is the circuit, is drawn again."""
    size, sets = len(circuit), []
    seen = {circuit.astype(np.int64).tobytes()}
    while len(sets) < samples:
        one = np.sort(rng.choice(of, size, replace=False))
        if one.tobytes() not in seen:
            seen.add(one.tobytes())
            sets.append(one)
    return np.stack(sets) if sets else np.zeros((0, size), dtype=np.int64)
