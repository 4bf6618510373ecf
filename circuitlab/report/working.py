"""Who is told how far long work is: nobody, unless a caller gives something else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from circuitlab.analysis.base import Ctx, NullContext

Working = Callable[[str], AbstractContextManager[Ctx]]  # the name of a piece of work -> the `Ctx` that it reports to


@contextmanager
def silent(title: str) -> Iterator[Ctx]:
    """Nobody is told."""
    yield NullContext()


def context_of(ctx: Ctx | None, working: Working) -> Working:
    """`working`, or this very `Ctx` where there is one."""
    if ctx is None:
        return working

    @contextmanager
    def same(title: str) -> Iterator[Ctx]:
        yield ctx

    return same
