"""The order of a ranking against Python's own sort, and heads' names."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from circuitlab.analysis.ordering import descending, head_names

VALUES = st.lists(st.floats(-3, 3) | st.sampled_from([math.nan, 0.0, -0.0, 1.0, -1.0, math.inf, -math.inf]), max_size=12)


@given(VALUES, st.booleans())
def test_the_largest_first_equals_in_their_order_and_nan_last(values: list[float], by_size: bool) -> None:
    size = abs if by_size else float
    expected = sorted(range(len(values)), key=lambda i: (math.isnan(values[i]), 0 if math.isnan(values[i]) else -size(values[i])))
    assert descending(np.array(values), by_size).tolist() == expected


def test_a_matrix_is_ranked_by_its_flat_indices() -> None:
    assert descending(np.array([[1.0, 3.0], [np.nan, 2.0]])).tolist() == [1, 3, 0, 2]


def test_heads_by_their_indices() -> None:
    assert head_names(np.array([0, 11]), np.array([3, 0])).tolist() == ["L0H3", "L11H0"]
    assert head_names((), ()).shape == (0,)
    with pytest.raises(ValueError, match="argument 2"):
        head_names((0, 1), (0,))
