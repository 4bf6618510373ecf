"""Where a model's weights are and how much memory a forward pass takes: rows of the Model panel and of `info`. And
how much is held now, of all models."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.estimates import estimate_run, estimate_streaming, estimate_weights
from circuitlab.engine.open_model import OpenModel
from circuitlab.model.devices import memory_of
from circuitlab.model.files.gguf.header import read_parts
from circuitlab.model.files.gguf.parts import parts_of
from circuitlab.model.files.gguf.tensors import dequantised_from
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.origin import File
from circuitlab.model.subject import ModelRef, Subject

MIB = 2**20
Row = tuple[str, str, str]


def size(n_bytes: int) -> str:
    """Bytes as text: "0.4 MiB", "812 MiB", "6.10 GiB"."""
    if n_bytes >= GIB:
        return f"{n_bytes / GIB:,.2f} GiB"
    return f"{n_bytes / MIB:,.0f} MiB" if n_bytes >= 10 * MIB else f"{n_bytes / MIB:,.1f} MiB"


@dataclass(frozen=True)
class Holding:
    """Bytes that an engine holds now: of the `n_models` that are open, of cached runs and results, and of results that were
    prepared or stored. All else that the process has, its libraries and its window, does not grow with use."""

    n_models: int
    models: int
    cached: int
    prepared: int

    @property
    def total(self) -> int:
        """All of it."""
        return self.models + self.cached + self.prepared


def holding(engine: Engine) -> Holding:
    """What an engine holds now. Counts what is there, and reads nothing."""
    store = engine.store
    return Holding(store.n_open, store.held_bytes, engine.cache.nbytes, engine.held_bytes)


def opening_cost(ref: ModelRef, largest_copy: int) -> str:
    """What a packed file will take when it is opened, by its header alone; "" for every other model. Raises `BadModel`.

    `largest_copy`: bytes of weights that are copied into memory.
    """
    if not isinstance(ref.origin, File):
        return ""
    path = Path(ref.origin.where)
    if path.suffix != ".gguf" or not path.is_file():
        return ""
    files = [WholeFile(part) for part in parts_of(path)]
    header = read_parts(files)
    if not (made_of := dequantised_from(header)):
        return ""
    copy = 4 * sum(tensor.numel for tensor in header.tensors.values())
    where = f"{size(copy)} in memory as float32" if copy <= largest_copy else f"read as it is used: {size(copy)} as float32"
    return f"{size(sum(file.size for file in files))} of {made_of}, {where}"


def memory_report(engine: Engine, subject: Subject) -> tuple[Row, ...]:
    """(group, name, value) in display order; () for a model that is not open. Computes nothing, reads only headers."""
    model = engine.store.peek(subject.model)
    if model is None:
        return ()
    assumed = [("assumed", a.name, f"{a.value} — {a.why}" if a.why else a.value) for a in model.opened.assumptions]
    return (*_memory(engine, model, subject), *_file(model, subject), *assumed)


def _memory(engine: Engine, model: OpenModel, subject: Subject) -> list[Row]:
    if model.absent:
        return [("memory", "weights", "not on this machine")]
    weights, dtype = model.opened.weights, subject.conventions.dtype
    config, n, place = weights.config, len(subject.tokens), engine.place_of(subject)
    needed = estimate_run(config, n, dtype) + (0 if weights.resident else estimate_streaming(config, dtype))
    in_memory = f"in memory, {size(estimate_weights(config, dtype))}"
    rows = [
        (
            "memory",
            "weights",
            in_memory if weights.resident else f"in their file, {size(_stored_bytes(model))}, read layer by layer",
        ),
        ("memory", "a forward pass", f"{size(needed)} for {number_of(n, 'token')}" if n else "no prompt yet"),
        ("memory", "budget", size(engine.memory) + (": the pass is refused" if n and needed > engine.memory else "")),
        ("memory", "device", place if place == engine.device else f"{place}: {engine.device} has no float64"),
    ]
    capacity = memory_of(place) if place != "cpu" else 0
    return [*rows, ("memory", f"memory of {place}", size(capacity))] if capacity else rows


def _stored_bytes(model: OpenModel) -> int:
    return sum(size for _, size, _ in model.identity)


def _file(model: OpenModel, subject: Subject) -> list[Row]:
    stored = model.dtypes
    stored_as = f"stored as {' and '.join(stored)}, " if stored else ""
    rows = [("file", "dtype", f"{stored_as}computed in {subject.conventions.dtype}")]
    rows += [("file", "family", model.opened.family)] if model.opened.family else []
    sha256 = " ".join(model.sha256[i : i + 8] for i in range(0, len(model.sha256), 8))  # so that the line can wrap
    return [*rows, ("file", "sha256", sha256 or "not read yet")]
