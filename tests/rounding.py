"""What holds on every processor of numbers that were computed twice: orders, ranks and counts, by value.

Two processors add the terms of a product in another order. Of a sum they agree to a few units in the last place of the sum of the
sizes of its terms; which of two nearly equal numbers is the larger they do not agree on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike


def check_largest(found: ArrayLike, values: ArrayLike, rtol: float = 1e-5, atol: float = 1e-9) -> None:
    """`found` [..., k] are different places in `values` [..., n], of the k largest, the largest first; equals in any order."""
    found, values = np.asarray(found, np.int64), np.asarray(values, np.float64)
    k = found.shape[-1]
    assert (np.diff(np.sort(found, axis=-1), axis=-1) > 0).all(), f"a place is named twice: {found}"
    np.testing.assert_allclose(np.take_along_axis(values, found, -1), -np.sort(-values, axis=-1)[..., :k], rtol, atol)


def check_ranks(found: ArrayLike, values: ArrayLike, of: ArrayLike, rtol: float = 1e-5, atol: float = 1e-9) -> None:
    """`found` [...] is 1 + how many of `values` [..., n] are larger than `of` [...]; what is nearly `of` may count or not."""
    found, values, of = np.asarray(found), np.asarray(values, np.float64), np.asarray(of, np.float64)[..., None]
    near = rtol * np.abs(of) + atol
    least, most = (values > of + near).sum(-1) + 1, (values >= of - near).sum(-1)
    assert ((least <= found) & (found <= np.maximum(most, least))).all(), f"{found} is not within {least} and {most}"


def check_histogram(found: ArrayLike, values: ArrayLike, bins: ArrayLike, within: float) -> None:
    """`found` [bin] counts the `values` in each of `bins`, and those outside in the first and the last; what lies `within` an
    edge may be on either side of it."""
    values, inner = np.ravel(values), np.asarray(bins, np.float64)[1:-1, None]
    below = np.cumsum(found)
    least, most = (values < inner - within).sum(-1), (values < inner + within).sum(-1)
    assert below[-1] == values.size and ((least <= below[:-1]) & (below[:-1] <= most)).all(), (
        f"below the edges {inner.ravel()} are {below[:-1]}, not {least} to {most}"
    )


def check_listed(found: ArrayLike, k: int, *of: ArrayLike, rtol: float = 1e-5, atol: float = 1e-9) -> None:
    """`found` [m] are, in any order, the places of the `k` largest of each row `of` [n]; of what is nearly the last, any."""
    listed, perhaps = {int(i) for i in np.ravel(found)}, set[int]()
    for values in map(np.asarray, of):
        last = np.sort(values)[-min(k, len(values))]
        near = rtol * abs(last) + atol
        largest = set(np.flatnonzero(values >= last - near).tolist())
        surely = set(np.flatnonzero(values > last + near).tolist())
        assert surely <= listed and len(largest & listed) >= min(k, len(values)), f"missing of {largest}: {largest - listed}"
        perhaps |= largest
    assert listed <= perhaps and len(listed) <= k * len(of), f"too many: {listed - perhaps or listed}"
