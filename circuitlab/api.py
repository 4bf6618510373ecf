"""CircuitLab from Python: open a model, compute an analysis, draw a figure; the same engine as the window.

import circuitlab.api as lab
model = lab.open("attn-only-2l")
answer = model.compute("attention", text="one two one two", heads="L1H3")
answer.result.values                                     # [head, dest, src]
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from circuitlab.analysis.base import analyses, find_analysis
from circuitlab.engine.codec import parse_params, to_json
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore, reference
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject

_ENGINE: Engine | None = None


def engine() -> Engine:
    """The process' engine, made at its first use."""
    global _ENGINE
    if _ENGINE is None:
        _ENGINE = Engine(ModelStore(), 4 * GIB)
    return _ENGINE


def open(model: str, use: Engine | None = None) -> Model:
    """Open a shipped model by name or a model directory by path. Raises `BadModel`."""
    ref = reference(model)
    chosen = use or engine()
    chosen.store.open(ref)
    return Model(ref, chosen)


class Model:
    """An open model. Text is encoded with its tokenizer, BOS in front where the model was trained with it."""

    def __init__(self, ref: ModelRef, use: Engine) -> None:
        self.ref, self.engine = ref, use

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.engine.store.open(self.ref).opened.weights.config

    def tokens(self, text: str, bos: bool | None = None) -> tuple[int, ...]:
        """Ids of a text. Raises `BadInput` where the model has no tokenizer."""
        tokenizer = self.engine.store.open(self.ref).opened.weights.tokenizer
        if tokenizer is None:
            raise BadInput(
                "The model has no tokenizer.", expected="token ids", got="text", remedy="Give tokens instead of text."
            )
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
        return Subject(self.ref, ids, edits, conventions or Conventions())

    def compute(
        self,
        analysis: str,
        text: str | None = None,
        tokens: tuple[int, ...] = (),
        bos: bool | None = None,
        **params: Any,
    ) -> Answer:
        """An answer. Parameters as in `circuitlab compute --set`, as text or as values. Raises `CircuitLabError`s."""
        request = Request(analysis, _params(analysis, params), self.subject(text, tokens, bos))
        return self.engine.answer(request)


def _params(name: str, given: Mapping[str, Any]) -> Any:
    found = find_analysis(name)
    texts = {k: v for k, v in given.items() if isinstance(v, str)}
    made = parse_params(found.params, {k: texts.get(k, "") for k in given if k in texts})
    known = {f.name for f in dataclasses.fields(found.params)}
    others = {k: v for k, v in given.items() if k not in texts}
    if unknown := sorted(set(others) - known):
        parse_params(found.params, dict.fromkeys(unknown, ""))
    return dataclasses.replace(made, **others)


def _as_text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "all"
    return "none" if value is None else str(value)


def snippet(request: Request) -> str:
    """Python that computes the same answer: what "Copy as Python" gives."""
    defaults = find_analysis(request.analysis).params()
    changed = {
        f.name: getattr(request.params, f.name)
        for f in dataclasses.fields(request.params)
        if getattr(request.params, f.name) != getattr(defaults, f.name)
    }
    subject = request.subject
    lines = ["import circuitlab.api as lab"]
    if subject.edits or subject.conventions != Conventions():
        lines.append("from circuitlab.engine.codec import from_json")
        lines.append("from circuitlab.engine.request import Request")
        lines.append("from circuitlab.model.subject import Subject")
    lines += ["", f"model = lab.open({subject.model.source!r})"]
    values = "".join(f", {k}={_literal(v)}" for k, v in changed.items())
    if subject.edits or subject.conventions != Conventions():
        lines.append(f"subject = from_json(Subject, {to_json(subject)!r})")
        lines.append(f"params = lab._params({request.analysis!r}, dict({values.removeprefix(', ')}))")
        lines.append(f"answer = model.engine.answer(Request({request.analysis!r}, params, subject))")
    else:
        lines.append(f"answer = model.compute({request.analysis!r}, tokens={subject.tokens!r}{values})")
    lines.append("print(answer.result.table())")
    return "\n".join(lines)


def _literal(value: Any) -> str:
    heads = isinstance(value, Head) or (isinstance(value, tuple) and value and isinstance(value[0], Head))
    return repr(_as_text(value)) if heads else repr(value)


__all__ = ["Model", "analyses", "engine", "open", "snippet"]
