"""What the tests take for the same up to rounding: no more and no less."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.rounding import check_histogram, check_largest, check_listed, check_ranks

VALUES = np.array([[0.5, 3.0, 3.0 + 1e-12, -1.0, 2.0], [1.0, 2.0, 3.0, 4.0, 5.0]])


def refuses(check: Callable[[], None]) -> None:
    with pytest.raises(AssertionError):
        check()


def test_the_largest_are_named_by_value() -> None:
    for first in ([1, 2, 4], [2, 1, 4]):
        check_largest([first, [4, 3, 2]], VALUES)
    for wrong in ([1, 4, 2], [1, 1, 4], [1, 2, 0], [1, 2, 3]):
        refuses(lambda wrong=wrong: check_largest(wrong, VALUES[0]))


def test_a_rank_among_equals_is_any_of_theirs() -> None:
    for rank in (1, 2):
        check_ranks([rank, 3], VALUES, [3.0, 3.0])
    for wrong in (0, 3):
        refuses(lambda wrong=wrong: check_ranks(wrong, VALUES[0], 3.0))
    check_ranks(4, VALUES[0], 1.0)  # of a number that is none of them
    refuses(lambda: check_ranks(3, VALUES[0], 1.0))


def test_what_either_lists_may_differ_at_the_last_place_alone() -> None:
    for listed in ([1, 4], [4, 2]):
        check_listed(listed, 1, *VALUES)
    for wrong in ([4], [0, 4], [1, 2, 4], [1, 2]):
        refuses(lambda wrong=wrong: check_listed(wrong, 1, *VALUES))


def test_what_lies_on_an_edge_is_counted_on_either_side() -> None:
    bins, values = [-2.0, 0.0, 1.0, 2.0], [-5.0, 1e-12, 0.5, 1.0, 9.0]
    for counts in ([1, 2, 2], [2, 1, 2], [1, 3, 1], [2, 2, 1]):
        check_histogram(counts, values, bins, 1e-9)
    for wrong in ([0, 3, 2], [1, 1, 3], [1, 2, 1]):
        refuses(lambda wrong=wrong: check_histogram(wrong, values, bins, 1e-9))
