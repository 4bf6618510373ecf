"""CircuitLab from Python: open a model, compute an analysis, draw a figure; the same engine as the window.

For one:

    import circuitlab.api as lab
    model = lab.open("attn-only-2l")
    answer = model.compute("attention", text="one two one two", heads="L1H3")
    answer.result.values                                     # [head, dest, src]
    model.figure("attention", text="one two one two", heads="L1H3", out="attention.svg")
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from circuitlab.analysis.base import analyses, find_analysis
from circuitlab.engine.codec import as_text, params_of, parse
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.export_data import table_text, write_answer
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.streamed import stream_directory
from circuitlab.model.importing import ImportMap, canonical, refuse_problems, survey
from circuitlab.model.intervention import Intervention
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.loading.family import tokenizer_at
from circuitlab.model.series import index_of
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.model.tensors import ResidentTensors
from circuitlab.model.tokenizer import Tokenizer
from circuitlab.session.state import State

if TYPE_CHECKING:
    from circuitlab.figures.marks import Figure

_ENGINE: Engine | None = None


def engine() -> Engine:
    """The process' engine, made at its first use."""
    global _ENGINE
    if _ENGINE is None:
        _ENGINE = Engine(ModelStore(), 4 * GIB)
    return _ENGINE


def open(model: str, checkpoint: int | None = None, use: Engine | None = None, assume: Mapping[str, str] | None = None) -> Model:
    """Open a shipped model by name, or a model's folder or file by path. Raises `BadModel`.

    `checkpoint` counts the checkpoints of a series from 0; `Model.at_step` takes a training step. `assume` says what the files
    leave open, by the names that `Model.assumptions` lists.
    """
    said = tuple(sorted((assume or {}).items()))
    ref = dataclasses.replace(reference(model), checkpoint=checkpoint, assume=said)
    chosen = use or engine()
    chosen.store.open(ref)
    return Model(ref, chosen)


def Transformer(
    config: ModelConfig | Mapping[str, Any],
    tensors: Mapping[str, Any],
    tokenizer: Tokenizer | str | Path | None = None,
    folder: str | Path | None = None,
    use: Engine | None = None,
) -> Model:
    """A model straight from tensors (torch's or numpy's), by canonical names: `embed.W_E`, `layers.0.W_Q`, `unembed.W_U` ….

    `config` may be a mapping of `ModelConfig`'s fields. Norms' gains and biases may be left out: they are 1 and 0. It is written
    to `folder` as a CircuitLab directory, without one to a temporary folder that goes when Python ends. Raises `BadModel` that
    names every tensor that is missing, has no place or has another shape.
    """
    made = config if isinstance(config, ModelConfig) else ModelConfig.from_json(config)
    as_given = {name: torch.as_tensor(value) for name, value in tensors.items()}
    given = {name: x.detach().cpu() if x.is_floating_point() else x.float().cpu() for name, x in as_given.items()}
    found, parts = survey(ImportMap(made, canonical(made, given)), ResidentTensors(given))
    refuse_problems(replace(found, problems=(*found.problems, *(f"{n} has no place in this model" for n in found.unused))))
    if isinstance(tokenizer, str | Path):
        tokenizer = tokenizer_at(str(tokenizer))
    where = Path(folder) if folder is not None else Path(_temporary()) / f"{len(list(Path(_temporary()).iterdir()))}-model"
    stream_directory(where, parts, tokenizer)
    return open(str(where), use=use)


@functools.cache
def _temporary() -> str:
    """A folder for models made from tensors, removed when Python ends."""
    made = tempfile.mkdtemp(prefix="circuitlab-")
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


class Model:
    """An open model. Text is encoded with its tokenizer, BOS in front where the model was trained with it."""

    def __init__(self, ref: ModelRef, use: Engine) -> None:
        self.ref, self.engine = ref, use

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.engine.store.open(self.ref).opened.weights.config

    @property
    def steps(self) -> tuple[int, ...]:
        """The training steps whose weights were kept, () without a checkpoint series."""
        return self.engine.store.open(self.ref).opened.steps

    def at_step(self, step: int | None) -> Model:
        """The same model as it was after `step` steps of training; None: its final weights. Raises `BadModel`."""
        ref = replace(self.ref, checkpoint=None if step is None else index_of(self.steps, step))
        self.engine.store.open(ref)
        return Model(ref, self.engine)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """What no file of the model says and was taken for granted."""
        return self.engine.store.open(self.ref).opened.assumptions

    def tokens(self, text: str, bos: bool | None = None) -> tuple[int, ...]:
        """Ids of a text; `bos` None: as the model was trained. Raises `BadInput` without a tokenizer or for no Unicode text."""
        tokenizer = self.engine.store.open(self.ref).opened.weights.tokenizer
        if tokenizer is None:
            raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Give tokens instead of text.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # bytes of a command line that are no UTF-8 arrive as lone surrogates
            raise BadInput("The text is not Unicode.", expected="UTF-8", got=str(error)[:120]) from error
        return tokenizer.encode(text, self.config.prepend_bos if bos is None else bos)

    def subject(
        self,
        text: str | None = None,
        tokens: tuple[int, ...] = (),
        bos: bool | None = None,
        edits: tuple[Intervention, ...] = (),
        conventions: Conventions | None = None,
    ) -> Subject:
        """What is asked about."""
        ids = tuple(tokens) if text is None else self.tokens(text, bos)
        return Subject(self.ref, ids, tuple(edits), conventions or Conventions())

    def compute(
        self,
        analysis: str,
        text: str | None = None,
        tokens: tuple[int, ...] = (),
        bos: bool | None = None,
        edits: tuple[Intervention, ...] = (),
        conventions: Conventions | None = None,
        fresh: bool = False,
        **params: Any,
    ) -> Answer:
        """An answer. Parameters as in `circuitlab compute --set`, as text or as values. Raises `CircuitLabError`s.

        `fresh` computes without anything kept from before: bit-equal at one thread.
        """
        request = Request(
            analysis,
            params_of(find_analysis(analysis).params, params),
            self.subject(text, tokens, bos, edits, conventions),
        )
        return self.engine.answer(request, fresh=fresh)

    def state(
        self,
        text: str | None = None,
        tokens: tuple[int, ...] = (),
        bos: bool | None = None,
        heads: str | tuple[Head, ...] = (),
        destination: int | None = None,
    ) -> State:
        """The bench as it stands with this prompt and this selection. Raises `BadInput` for a position that is not there."""
        ids = self.subject(text, tokens, bos).tokens
        made = State(self.ref, bos=self.config.prepend_bos if bos is None else bos).with_text(text or "", ids)
        chosen = parse(tuple[Head, ...], heads, "heads") if isinstance(heads, str) else tuple(heads)
        made = made.select(heads=chosen) if chosen else made
        if destination is None:
            return made
        if not 0 <= destination < len(ids):
            raise BadInput("There is no such position.", expected=f"0..{len(ids) - 1}", got=str(destination))
        return made.select(destination=destination, locked=True)

    def figure(
        self,
        panel: str,
        text: str | None = None,
        tokens: tuple[int, ...] = (),
        bos: bool | None = None,
        heads: str | tuple[Head, ...] = (),
        destination: int | None = None,
        out: str | Path | None = None,
        width_mm: float = 160.0,
        **view: Any,
    ) -> Figure:
        """What a panel of the window shows, `view` its controls; written to `out` (PNG, SVG, PDF) if that is given."""
        from circuitlab.figures.panel import find_panel
        from circuitlab.report.render import figure_of, write

        found = find_panel(panel)
        state = self.state(text, tokens, bos, heads, destination).with_view(panel, params_of(found.view, view))
        made = figure_of(self.engine, found, state)
        if out is not None:
            write(made, Path(out), width_mm)
        return made


def table(answer: Answer) -> str:
    """The answer's table as text, tabs between the columns."""
    return table_text(answer.result.table(), "\t")


def save(answer: Answer, path: str | Path) -> None:
    """Write CSV, NPZ or JSON by suffix, with the hash of the weights."""
    write_answer(engine().identified(answer), Path(path))


def snippet(request: Request) -> str:
    """Python that computes the same answer: what "Copy as Python" gives."""
    subject = request.subject
    imports = ["import circuitlab.api as lab"]
    said = [repr(request.analysis), f"tokens={subject.tokens!r}"]
    if subject.edits:
        imports.append("from circuitlab.model.intervention import Intervention, Site")
        said.append(f"edits={subject.edits!r}")
    if subject.conventions != Conventions():
        imports.append("from circuitlab.model.subject import Conventions")
        said.append(f"conventions={subject.conventions!r}")
    defaults = {f.name: f.default for f in dataclasses.fields(request.params)}
    given = ((name, getattr(request.params, name)) for name in defaults)
    said += [f"{name}={_literal(value)}" for name, value in given if value != defaults[name]]
    model = subject.model
    at = "" if model.checkpoint is None else f", checkpoint={model.checkpoint}"
    assumed = f", assume={dict(model.assume)!r}" if model.assume else ""
    opened = f"model = lab.open({model.source!r}{at}{assumed})"
    return "\n".join([*imports, "", opened, f"answer = model.compute({', '.join(said)})", "print(lab.table(answer))"])


def _literal(value: Any) -> str:
    """As it would be typed: heads as "L1H3,L0H2", plain values as they are."""
    plain = isinstance(value, (bool, int, float, str)) or value is None
    numbers = isinstance(value, tuple) and not isinstance(value, Head) and all(type(v) in (int, float) for v in value)
    return repr(value) if plain or numbers else repr(as_text(value))


__all__ = ["Model", "Transformer", "analyses", "engine", "open", "save", "snippet", "table"]
