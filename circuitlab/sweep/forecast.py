"""What a sweep will take before it is begun: cells, time and memory. A cell of each kind is answered to see how long it takes.

Cells of one kind differ in step, prompt and interventions; the one that is answered has a prompt of the median length. Each is
answered by itself, so that a forward pass which several analyses share is counted for each: the time is rather too long.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from circuitlab.analysis.base import Ctx
from circuitlab.counting import number_of
from circuitlab.engine.cache import Cache
from circuitlab.engine.engine import Engine, memory_words
from circuitlab.engine.estimates import estimate_weights
from circuitlab.errors import CircuitLabError
from circuitlab.sweep.orders import order_of
from circuitlab.sweep.plan import Cell, Plan
from circuitlab.sweep.time_left import duration
from circuitlab.sweep.work import outcome, refusal

QUICK = 0.5  # s: what takes less is answered twice, the first time to warm up


@dataclass(frozen=True)
class Forecast:
    """`cells` of the table, `done` of them before, `refused`: how often each reason is given; `kinds`: (words, cells, seconds of
    one); `opening`: seconds to open all models; `memory`: bytes of the largest cell; `weights`: of the largest model."""

    cells: int
    done: int
    refused: dict[str, int]
    kinds: tuple[tuple[str, int, float], ...]
    opening: float
    memory: int
    weights: int

    @property
    def left(self) -> int:
        """The cells that would be answered."""
        return sum(n for _, n, _ in self.kinds)

    def seconds(self, workers: int) -> float:
        """How long they would take."""
        return self.opening + sum(n * seconds for _, n, seconds in self.kinds) / workers

    def lines(self, workers: int, budget: int) -> Iterator[str]:
        """The forecast in words, for so many workers that share `budget` bytes."""
        answered = f"{self.left:,} to be answered, {number_of(self.done, 'question')} answered before"
        yield f"{number_of(self.cells, 'cell')}; {answered}"
        yield from (f"  {n:,} × {1000 * seconds:,.3g} ms  {words}" for words, n, seconds in self.kinds)
        yield from (f"  {n:,} refused: {why}" for why, n in self.refused.items())
        started = ", once they have started" if workers > 1 else ""
        yield f"time: about {duration(self.seconds(workers))} by {number_of(workers, 'worker')} like this one{started}"
        beside = f"for the largest cell beside {memory_words(self.weights)} of weights, in each worker"
        yield f"memory: {memory_words(self.memory)} {beside}; budget {memory_words(budget)}"


def forecast(plan: Plan, engine: Engine, done: Collection[str], ctx: Ctx) -> Forecast:
    """What is left of a plan; `done`: the cells that are not asked again. Writes nothing. Raises `Cancelled`."""
    refused = Counter(refusal(cell.why)["error"] for cell in plan.cells if cell.why is not None)
    kinds: defaultdict[tuple[str, ...], list[Cell]] = defaultdict(list)
    memory = 0
    for cell in plan.asked:
        if cell.key in done or cell.request is None:
            continue
        try:
            memory = max(memory, engine.check(cell.request))
        except CircuitLabError as error:
            refused[refusal(error)["error"]] += 1
        else:
            kinds[cell.kind].append(cell)
    timed: list[tuple[str, int, float]] = []
    opening: dict[str, float] = {}
    for i, (kind, cells) in enumerate(kinds.items()):
        ctx.tick(i, len(kinds), "kinds of cells, one of each answered")
        middle = sorted(cells, key=_length)[len(cells) // 2]
        if middle.point.name not in opening:
            opening[middle.point.name] = _opened(engine, middle)
        timed.append((" · ".join(part for part in kind if part != "float32"), len(cells), _timed(engine, middle, ctx)))
    points = {id(cell.point): cell.point for cells in kinds.values() for cell in cells}.values()
    seconds = sum(opening.get(point.name, 0.0) for point in points)
    weights = max((estimate_weights(point.config) for point in points if point.config is not None), default=0)
    return Forecast(len(plan.cells), len(done), dict(refused.most_common()), tuple(timed), seconds, memory, weights)


def _length(cell: Cell) -> int:
    return 0 if cell.request is None else len(cell.request.subject.tokens)


def _opened(engine: Engine, cell: Cell) -> float:
    """Seconds to open the model of a cell once more."""
    assert cell.request is not None
    ref = cell.request.subject.model
    return _seconds(lambda: engine.store.reload(ref))


def _timed(engine: Engine, cell: Cell, ctx: Ctx) -> float:
    """Seconds to answer a cell."""
    once = lambda: outcome(engine, Cache(engine.memory // 4), order_of(cell), ctx)
    seconds = _seconds(once)
    return seconds if seconds > QUICK else _seconds(once)


def _seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began
