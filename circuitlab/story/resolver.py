"""From the words of a step to a State, and to the requests of the numbers in its text. Blocking: for a worker thread.

A Setup is complete (with the settings of all earlier steps), so that a step gives the same State however it is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.analysis.behaviour.samples import bos_of, fit_to_context, repeated_random
from circuitlab.counting import number_of
from circuitlab.engine.codec import params_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import OpenModel, reference
from circuitlab.errors import BadInput, CircuitLabError, UsageError, printable
from circuitlab.model.editor import check_edits
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.session.cuts import ablation
from circuitlab.session.state import Pin, Selection, State
from circuitlab.story.setup import BEST, FINAL, Direction, Edits, Encoded, Index, Occurrence, Other, Random, Setup, Token, Where
from circuitlab.story.story import Step
from circuitlab.story.values import Value, live, live_controls


@dataclass(frozen=True)
class Ready:
    """A step with its models open. `asked`: each value, its question; `failed`: those that cannot be asked for, and why.

    `words` are what {model}, {head} … stand for in the text. `mismatch`: how the prompt's ids differ from those that the
    tokenizer gives for its text, "" where they do not.
    """

    state: State
    requests: Mapping[str, tuple[Value, Request]]
    failed: Mapping[str, BaseException]
    words: Mapping[str, str]
    mismatch: str = ""


class Resolver:
    """Turns Setups into States with the engine's models.

    `views`: view types by panel. `base`: the State whose model and text are used where no step sets them. `models`: what the
    names of a session's models stand for. `tolerant`: settings of panels that this version does not have are kept unread,
    otherwise they are refused.
    """

    def __init__(
        self,
        engine: Engine,
        views: Mapping[str, type[Any]],
        base: State,
        ctx: Ctx | None = None,
        models: Mapping[str, ModelRef] | None = None,
        tolerant: bool = False,
    ) -> None:
        self.engine, self.views, self.base, self.ctx = engine, views, base, ctx or NullContext()
        self.models, self.tolerant = models or {}, tolerant

    def ready(self, setup: Setup, step: Step) -> Ready:
        """Everything a step needs. Raises `BadInput`, `BadModel` …; the error of a value is kept with the value."""
        state = self.state(setup)
        requests: dict[str, tuple[Value, Request]] = {}
        failed: dict[str, BaseException] = {}
        for value in step.values:
            try:
                requests[value.name] = self.question(value, setup, state)
            except CircuitLabError as error:
                failed[value.name] = error
        return Ready(state, requests, failed, self._words(state), self._mismatch(setup, state))

    def _mismatch(self, setup: Setup, state: State) -> str:
        tokenizer = self.engine.store.open(state.model).opened.weights.tokenizer
        if not isinstance(setup.prompt, Encoded) or tokenizer is None:
            return ""
        try:
            ids = tokenizer.encode(setup.prompt.text, state.bos)
        except BadInput as error:
            return f"The tokens shown are not those of the text: {state.model.name} cannot read it. {error.what}"
        if ids == setup.prompt.ids:
            return ""
        now, then = number_of(len(ids), "token"), number_of(len(setup.prompt.ids), "token")
        counts = f"{then} then, {now} now" if len(ids) != len(setup.prompt.ids) else f"{then}, other ones now"
        return f"{state.model.name} reads this text differently now ({counts}). The tokens shown are the ones kept with the step."

    def question(self, value: Value, setup: Setup, state: State) -> tuple[Value, Request]:
        """(a value with each "best …" in its `read` replaced, its request)."""
        about = state
        if value.other is not None:
            about = self._plain(value.other.of(setup), strict=False)
        elif value.pinned:
            if state.reference is None:
                raise BadInput("Nothing is pinned.", expected="a pin at this step", got=f"{value.name}: on = pin")
            about = state.at(state.reference)
        model = self.engine.store.open(about.model)
        best = lambda score: self._best(score, model)
        request = Request.named(value.analysis, value.request_params(about, best), about.subject)
        return replace(value, read=live(value.read, best)), request

    def state(self, setup: Setup) -> State:
        """The State of a setup, with its pins."""
        state = self._plain(setup)
        pins = () if setup.pin is None or setup.pin == "before" else setup.pin
        state = replace(state, pins=tuple(pin for one in pins if (pin := self._pin(one, setup, state)) is not None))
        return replace(state, compare=(setup.compare or "now") if state.reference is not None else "now")

    def _pin(self, pin: Other | Setup, setup: Setup, state: State) -> Pin | None:
        """The pin, or None where it has no name and the state without its interventions is the same reference."""
        other = self._plain(pin.of(setup) if isinstance(pin, Other) else pin, strict=False)
        label = pin.label if isinstance(pin, Other) else ""
        if not label and state.subject.edits and other.subject == replace(state.subject, edits=()):
            return None
        return Pin(label or self._label(state, other), other.subject, other.selection, other.text)

    def _label(self, state: State, other: State) -> str:
        if other.model != state.model:
            return self.model_words(other.model)
        if other.tokens != state.tokens:
            return other.text[:24] or "other tokens"
        return "cut" if other.subject.edits else "pin"

    def model_words(self, ref: ModelRef) -> str:
        """A model's name, with the training step of a checkpoint."""
        return ref.name if ref.checkpoint is None else self.engine.store.open(ref).name

    def _plain(self, setup: Setup, strict: bool = True) -> State:
        """The State of a setup without its pins. Not `strict`: positions that the prompt does not have are left out."""
        model = self.engine.store.open(self._reference(setup))
        text, tokens, bos = self._prompt(setup, model)
        return State(
            model.ref,
            text,
            tokens,
            bos,
            self._edits(setup, model, len(tokens)),
            setup.conventions or Conventions(),
            self._selection(setup, model, tokens, strict),
            self._views(setup, model),
            draft=setup.draft or "",
        )

    def _selection(self, setup: Setup, model: OpenModel, tokens: tuple[int, ...], strict: bool) -> Selection:
        heads = self._heads(setup.heads or (), model)
        destination = self._position(setup.destination, model, tokens, strict)
        target = setup.target or ()
        selection = Selection(
            heads or (Head(0, 0),),
            destination,
            self._position(setup.source, model, tokens, strict),
            locked=destination is not None if setup.locked is None else setup.locked,
            token=self._token(setup.token, model) if setup.token not in (None, "") else None,
            target=self._target(target, model),
        )
        if setup.edge:
            source, reader = self._heads(setup.edge, model)
            selection = selection.with_edge(source, reader, setup.edge_kind or "K", *heads)
        return selection

    def _target(self, target: tuple[Token, ...] | Direction, model: OpenModel) -> Target:
        if not isinstance(target, Direction):
            return Target(tuple(self._token(token, model) for token in target))
        d_model = model.opened.weights.config.d_model
        if len(target.values) != d_model:
            expected = f"{number_of(d_model, 'number')}, d_model of {model.ref.name}"
            raise BadInput("The target direction does not fit.", expected=expected, got=number_of(len(target.values), "number"))
        return Target(direction=target.values)

    def _reference(self, setup: Setup) -> ModelRef:
        ref = self.base.model if setup.model is None else self.models.get(setup.model) or reference(setup.model)
        if setup.checkpoint is None or setup.checkpoint == FINAL:
            return replace(ref, checkpoint=None)
        steps = self.engine.store.open(replace(ref, checkpoint=None)).opened.steps
        if not isinstance(setup.checkpoint, Index):
            return replace(ref, checkpoint=nearest(ref, steps, setup.checkpoint))
        if setup.checkpoint.index >= len(steps):
            expected, got = f"one of {number_of(len(steps), 'checkpoint')}", str(setup.checkpoint.index)
            raise BadInput(f"{ref.name} has no such checkpoint.", expected=expected, got=got)
        return replace(ref, checkpoint=setup.checkpoint.index)

    def _prompt(self, setup: Setup, model: OpenModel) -> tuple[str, tuple[int, ...], bool]:
        """(text, ids, whether they begin with BOS) of a setup's prompt."""
        weights, prompt = model.opened.weights, self.base.text if setup.prompt is None else setup.prompt
        config, tokenizer = weights.config, weights.tokenizer
        first = None if tokenizer is None else tokenizer.bos
        text = ""
        if isinstance(prompt, Random):
            tokens = self._random(prompt, model)
        elif isinstance(prompt, tuple):
            tokens = prompt
        elif isinstance(prompt, Encoded):
            text, tokens = prompt.text, prompt.ids
        elif tokenizer is None:
            raise BadInput("The model has no tokenizer.", expected="tokens = [...] in the step", got=printable(prompt, 60))
        else:
            text, tokens = prompt, tokenizer.encode(prompt, config.prepend_bos if setup.bos is None else setup.bos)
        if len(tokens) > config.n_ctx or any(t >= config.d_vocab for t in tokens):
            expected = f"at most {number_of(config.n_ctx, 'token')}, ids below {config.d_vocab}"
            raise BadInput(f"The prompt does not fit {model.ref.name}.", expected=expected, got=number_of(len(tokens), "token"))
        bos = bool(tokens) and tokens[0] == first if setup.bos is None else setup.bos and first is not None
        return text, tokens, bos

    def _random(self, prompt: Random, model: OpenModel) -> tuple[int, ...]:
        weights = model.opened.weights
        fit = fit_to_context(weights.config, prompt.block, prompt.repeats)
        if fit is None:
            expected, got = f"room for {prompt.block} × {prompt.repeats} tokens", f"a context of {weights.config.n_ctx}"
            raise BadInput(f"The prompt does not fit {model.ref.name}.", expected=expected, got=got)
        return tuple(repeated_random(weights.config, bos_of(weights), *fit, 1, prompt.seed)[0].tolist())

    def _heads(self, texts: tuple[str, ...], model: OpenModel) -> tuple[Head, ...]:
        config = model.opened.weights.config
        heads = [self._best(t.removeprefix(BEST).strip(), model) if t.startswith(BEST) else Head.parse(t) for t in texts]
        for head in heads:
            if head.layer >= config.n_layers or head.head >= config.n_heads:
                expected = f"{number_of(config.n_layers, 'layer')} of {number_of(config.n_heads, 'head')}"
                raise BadInput(f"{model.ref.name} has no head {head}.", expected=expected, got=str(head))
        return tuple(dict.fromkeys(heads))

    def _best(self, score: str, model: OpenModel) -> Head:
        result = self.engine.answer(Request(head_scores, HeadScoresParams(), Subject(model.ref)), self.ctx).result
        if score not in result.names:
            raise BadInput("There is no such score.", expected=" ".join(result.names), got=printable(score))
        values = result.of(score)
        if not np.isfinite(values).any():
            raise BadInput(f"{model.ref.name} has no head with a score.", expected=score, got="none")
        layer, head = np.unravel_index(int(np.nanargmax(values)), values.shape)
        return Head(int(layer), int(head))

    def _edits(self, setup: Setup, model: OpenModel, n_tokens: int) -> Edits:
        if setup.edits is not None:
            check_edits(model.opened.weights.config, tuple(edit for edit, on in setup.edits if on), n_tokens)
            return setup.edits
        return tuple((ablation(head), True) for head in self._heads(setup.cut or (), model))

    def _views(self, setup: Setup, model: OpenModel) -> dict[str, Any]:
        """The settings of panels, where they are not the default."""
        unknown = sorted(set(setup.view) - set(self.views))
        if unknown and not self.tolerant:
            raise BadInput("There is no such panel.", expected=" ".join(self.views), got=printable(" ".join(unknown)))
        best = lambda score: self._best(score, model)
        read = {}
        for name, controls in setup.view.items():
            if name not in self.views:
                read |= {name: dict(controls)} if controls else {}
                continue
            kind = self.views[name]
            try:
                view = params_of(kind, live_controls(kind, controls, best))
            except UsageError:  # controls of another version
                if not self.tolerant:
                    raise
                view = dict(controls)
            if view != kind():
                read[name] = view
        return read

    def _token(self, token: Token | None, model: OpenModel) -> int:
        tokenizer, vocabulary = model.opened.weights.tokenizer, model.opened.weights.config.d_vocab
        if isinstance(token, int):
            if token < vocabulary:
                return token
            raise BadInput(f"{model.ref.name} has no token {token}.", expected=f"an id below {vocabulary}", got=str(token))
        found = None if tokenizer is None or token is None else tokenizer.find(token)
        if found is None:
            given = printable(token, 60)
            raise BadInput(f"‘{given}’ is not one token of {model.ref.name}.", expected="the text of one token", got=given)
        return found

    def _position(self, where: Where | None, model: OpenModel, tokens: tuple[int, ...], strict: bool) -> int | None:
        if where is None or isinstance(where, tuple):
            return None
        if isinstance(where, Occurrence):
            occurrences = _occurrences(where.text, model, tokens)
            at = where.occurrence - 1 if where.occurrence > 0 else where.occurrence
            inside, n = -len(occurrences) <= at < len(occurrences), len(occurrences)
            position = occurrences[at] if inside else None
        else:
            n = len(tokens)
            position = where % n if -n <= where < n else None
        if position is None and strict:
            raise BadInput("There is no such place in the prompt.", expected=f"one of {n}", got=printable(where))
        return position

    def _words(self, state: State) -> dict[str, str]:
        """The words that the text may use without declaring them."""
        model = self.engine.store.open(state.model)
        tokenizer, chosen = model.opened.weights.tokenizer, state.selection
        show = str if tokenizer is None else tokenizer.display
        at = lambda p: f"‘{show(state.tokens[p])}’" if p is not None and p < len(state.tokens) else "the last token"
        steps = model.opened.steps
        return {
            "model": replace(state.model, checkpoint=None).name,
            "step": "the end" if state.model.checkpoint is None else f"{steps[state.model.checkpoint]:,}",
            "head": str(chosen.head),
            "heads": ", ".join(map(str, chosen.heads)),
            "destination": at(chosen.destination),
            "source": at(chosen.source),
            "token": "no token" if chosen.token is None else f"‘{show(chosen.token)}’",
            "n_tokens": str(len(state.tokens)),
            "pin": "nothing" if state.reference is None else state.reference.label,
        }


def nearest(ref: ModelRef, steps: tuple[int, ...], step: int) -> int:
    """The index of a model's checkpoint nearest to a training step. Raises `BadInput` if it has no checkpoints."""
    if not steps:
        raise BadInput(f"{ref.name} has no checkpoints.", expected="a model with a checkpoint series", got=f"step {step}")
    return min(range(len(steps)), key=lambda i: abs(steps[i] - step))


def _occurrences(text: str, model: OpenModel, tokens: tuple[int, ...]) -> list[int]:
    """The position of the last token of a text, for each time that its tokens occur in the prompt."""
    tokenizer = model.opened.weights.tokenizer
    if tokenizer is None:
        raise BadInput("The model has no tokenizer.", expected="positions as numbers", got=printable(text))
    sought = tokenizer.encode(text)
    n = len(sought)
    return [i + n - 1 for i in range(len(tokens) - n + 1) if n and tokens[i : i + n] == sought]
