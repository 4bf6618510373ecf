"""From the words of a step to a State, and to the requests of the numbers in its text. Blocking: for a worker thread.

A Setup is complete (with the settings of all earlier steps), so that a step gives the same State however it is reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from circuitlab.analysis.attention.head_scores import HeadScoresParams, head_scores
from circuitlab.analysis.base import Ctx, NullContext
from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.engine.codec import params_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import OpenModel, reference
from circuitlab.errors import BadInput, CircuitLabError, UsageError, printable, quoted, reason
from circuitlab.model.archives.offering import need_checkpoints
from circuitlab.model.editor import check_edits
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.state.cuts import ablation
from circuitlab.state.reference_names import differences
from circuitlab.state.state import Pin, Selection, State
from circuitlab.story.film import Scene, film_points, scenes_of_training, scenes_over
from circuitlab.story.named_in_model import position_of, prompt_of, special_of, target_of, token_of
from circuitlab.story.panel_names import need_some_panel
from circuitlab.story.places import with_absolute_files
from circuitlab.story.setup import (
    BEST,
    FINAL,
    Checkpoint,
    Edits,
    Encoded,
    Index,
    Other,
    Setup,
    Sweep,
    Views,
)
from circuitlab.story.story import Step
from circuitlab.story.values import Value, live, live_controls


@dataclass(frozen=True)
class Ready:
    """A step with its models open. `requests`: each value with its request; `failed`: the errors of those that have none.

    `words` are what {model}, {head} … stand for in the text. `mismatch`: how the training step differs from the one named,
    and the prompt's ids from those that the tokenizer gives for its text, "" where they do not. `film`: the scenes that the step
    plays, () without a film; `no_film`: why it cannot play.
    """

    state: State
    requests: Mapping[str, tuple[Value, Request]]
    failed: Mapping[str, BaseException]
    words: Mapping[str, str]
    mismatch: str = ""
    film: tuple[Scene, ...] = ()
    no_film: str = ""

    @property
    def beginning(self) -> State:
        """What the step shows first: of a film its first scene."""
        return self.film[0].state if self.film else self.state


class Resolver:
    """Turns Setups into States with the engine's models.

    `base`: the State whose model and text are used where no step sets them. `models`: what the names of a session's models stand
    for. `tolerant`: settings of panels that this version does not have are kept unread, otherwise they are refused. `folder`:
    from which a lesson names the files in settings of panels.
    """

    def __init__(
        self,
        engine: Engine,
        views: Views,
        base: State,
        ctx: Ctx | None = None,
        models: Mapping[str, ModelRef] | None = None,
        tolerant: bool = False,
        folder: Path | None = None,
    ) -> None:
        self.engine, self.views, self.base, self.ctx = engine, views, base, ctx or NullContext()
        self.models, self.tolerant, self.folder = models or {}, tolerant, folder

    def ready(self, setup: Setup, step: Step) -> Ready:
        """Everything a step needs. Raises `BadInput`, `BadModel` …; the error of a value is kept with the value.

        A step of words alone leaves what was shown, whatever that is.
        """
        if step.setup is not None:
            need_some_panel(setup, self.views)
        state = self.state(setup)
        requests: dict[str, tuple[Value, Request]] = {}
        failed: dict[str, BaseException] = {}
        for value in step.values:
            try:
                requests[value.name] = self.question(value, setup, state)
            except CircuitLabError as error:
                failed[value.name] = error
        try:
            film, no_film = self.film(setup, state), ""
        except CircuitLabError as error:
            film, no_film = (), reason(error)
        mismatch = " ".join(filter(None, (self.other_step(setup, state), self._mismatch(setup, state))))
        return Ready(state, requests, failed, self._words(state), mismatch, film, no_film)

    def film(self, setup: Setup, state: State) -> tuple[Scene, ...]:
        """A setup's State at each point of its film, () without one.

        Raises `BadInput` without checkpoints or parameters, `BadModel` where the first cannot be read or made, or where the
        weights are not on this machine and nothing is stored of some point.
        """
        if setup.play is None:
            return ()
        if isinstance(setup.play, Sweep):
            scenes = scenes_over(state, setup.play)
            self.engine.store.open(scenes[0].state.model)
            return scenes
        ref = replace(state.model, checkpoint=None)
        model = self.engine.store.open(ref)
        steps = len(model.opened.steps)
        if not steps:
            model.need_weights()
            need_checkpoints(ref, "a film")
            raise BadInput(
                f"{ref.name} has no checkpoints to play.",
                expected="a model with a checkpoint series",
                got="none",
                remedy="Leave the film out, or open a model with a series.",
            )
        first, last = (self._at(ref, point) for point in setup.play)
        if model.absent and not all(self.engine.store.open(point).sha256 for point in film_points(first, last, steps)):
            model.need_weights()
        self.engine.store.open(first)
        return scenes_of_training(self.engine.store, state, first, last)

    def other_step(self, setup: Setup, state: State) -> str:
        """That another training step is shown than the setup names, in a sentence; "" where it is this one."""
        asked = setup.checkpoint
        if not isinstance(asked, int) or state.model.checkpoint is None:
            return ""
        shown = self.engine.store.open(replace(state.model, checkpoint=None)).opened.steps[state.model.checkpoint]
        name = replace(state.model, checkpoint=None).name
        return "" if shown == asked else f"{name} has no step {asked:,}: step {shown:,} is shown, the nearest."

    def _mismatch(self, setup: Setup, state: State) -> str:
        tokenizer = self.engine.store.open(state.model).opened.weights.tokenizer
        if not isinstance(setup.prompt, Encoded) or tokenizer is None:
            return ""
        try:
            text = tokenizer.long_enough(setup.prompt.text, len(setup.prompt.ids), state.special)
            ids = tokenizer.encode(text, *state.reading)
        except BadInput as error:
            return f"The tokens shown are not those of the text: {state.model.name} cannot read it. {error.what}"
        if ids == setup.prompt.ids:
            return ""
        more = "more than " if len(text) < len(setup.prompt.text) else ""
        now, then = f"{more}{number_of(len(ids), 'token')}", number_of(len(setup.prompt.ids), "token")
        counts = f"{then} then, {now} now" if len(ids) != len(setup.prompt.ids) else f"{then}, other ones now"
        return f"{state.model.name} reads this text differently now ({counts}). The tokens shown are the ones kept with the step."

    def question(self, value: Value, setup: Setup, state: State) -> tuple[Value, Request]:
        """(a value with each "best …" in its `read` replaced, its request)."""
        about = state
        if value.other is not None:
            about = self._plain(value.other.of(setup), strict=False)
        elif value.pinned:
            if state.reference is None:
                raise BadInput(
                    "Nothing is pinned.",
                    expected="a pin at this step",
                    got=f"{value.name}: on = pin",
                    remedy="Pin a reference at this step, or leave out on = pin.",
                )
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
        """What the pin has otherwise, in words."""
        pin = Pin("", other.subject, other.selection, other.text)
        name_parts = lambda ref: self.engine.store.open(ref).name_parts
        return ", ".join(differences(state, pin, name_parts, self.engine.store.open(other.model).opened.weights.config)) or "pin"

    def _plain(self, setup: Setup, strict: bool = True) -> State:
        """The State of a setup without its pins. Not `strict`: positions that the prompt does not have are left out."""
        model = self.engine.store.open(self._reference(setup))
        text, tokens, (bos, front) = prompt_of(setup, self.base.text, model)
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
            special=special_of(setup, front or bos, model),
            front=front,
        )

    def _selection(self, setup: Setup, model: OpenModel, tokens: tuple[int, ...], strict: bool) -> Selection:
        heads = self._heads(setup.heads or (), model)
        destination = position_of(setup.destination, model, tokens, strict)
        target = setup.target or ()
        selection = Selection(
            heads or (Head(0, 0),),
            destination,
            position_of(setup.source, model, tokens, strict),
            locked=destination is not None if setup.locked is None else setup.locked,
            token=token_of(setup.token, model) if setup.token not in (None, "") else None,
            target=target_of(target, model),
        )
        if setup.edge:
            source, reader = self._edge(setup.edge, model)
            selection = selection.with_edge(source, reader, setup.edge_kind or "K", *heads)
        return selection

    def _edge(self, edge: tuple[str, str], model: OpenModel) -> tuple[Head, Head]:
        """The two heads of a composition, of which one may be named by its score."""
        (source,), (reader,) = (self._heads((name,), model) for name in edge)
        if source == reader:
            raise BadInput(
                "A head does not compose with itself.",
                expected="a head and one that reads it",
                got=f"{source} twice",
                remedy="Name another head, of an earlier or a later layer.",
            )
        return source, reader

    def _reference(self, setup: Setup) -> ModelRef:
        ref = self.base.model if setup.model is None else self.models.get(setup.model) or reference(setup.model)
        return self._at(ref, FINAL if setup.checkpoint is None else setup.checkpoint)

    def _at(self, ref: ModelRef, checkpoint: Checkpoint) -> ModelRef:
        """A model at a training step, the nearest that was kept. Raises `BadInput` if it has no checkpoints, or not this one."""
        if checkpoint == FINAL:
            return replace(ref, checkpoint=None)
        steps = self.engine.store.open(replace(ref, checkpoint=None)).opened.steps
        if not isinstance(checkpoint, Index):
            return replace(ref, checkpoint=nearest(ref, steps, checkpoint))
        if checkpoint.index >= len(steps):
            raise BadInput(
                f"{ref.name} has no such checkpoint.",
                expected=f"0 to {len(steps) - 1}" if steps else "a model with a checkpoint series",
                got=f"checkpoint {quoted(checkpoint.index)}",
                remedy="Name one of its checkpoints, or leave the checkpoint out for the final weights.",
            )
        return replace(ref, checkpoint=checkpoint.index)

    def _heads(self, texts: tuple[str, ...], model: OpenModel) -> tuple[Head, ...]:
        config = model.opened.weights.config
        heads = [self._best(t.removeprefix(BEST).strip(), model) if t.startswith(BEST) else Head.parse(t) for t in texts]
        for head in heads:
            if head.layer >= config.n_layers or head.head >= config.n_heads:
                expected = f"{number_of(config.n_layers, 'layer')} of {number_of(config.n_heads, 'head')}"
                raise BadInput(
                    f"{model.ref.name} has no head {head}.",
                    expected=expected,
                    got=str(head),
                    remedy="Name a head that the model has, layer and head counted from 0.",
                )
        return tuple(dict.fromkeys(heads))

    def _best(self, score: str, model: OpenModel) -> Head:
        """The head that scores best; of "final …" with the final weights, whichever checkpoint the model is at."""
        if score.startswith(f"{FINAL} "):
            score, model = score.removeprefix(f"{FINAL} "), self.engine.store.open(replace(model.ref, checkpoint=None))
        result = self.engine.answer(Request(head_scores, HeadScoresParams(), Subject(model.ref)), self.ctx).result
        if score not in result.names:
            raise BadInput(
                "There is no such score.",
                expected=" ".join(result.names),
                got=printable(score),
                remedy="Name one of these scores.",
            )
        head = result.best(score)
        if head is None:
            raise BadInput(
                f"{model.ref.name} has no head with a score.",
                expected=score,
                got="none",
                remedy="Name a head instead, such as L1H4.",
            )
        return head

    def _edits(self, setup: Setup, model: OpenModel, n_tokens: int) -> Edits:
        if setup.edits is not None:
            check_edits(model.opened.weights.config, tuple(edit for edit, on in setup.edits if on), n_tokens)
            return setup.edits
        return tuple((ablation(head), True) for head in self._heads(setup.cut or (), model))

    def _views(self, setup: Setup, model: OpenModel) -> JsonDict:
        """The settings of panels, where they are not the default."""
        unknown = sorted(set(setup.view) - set(self.views))
        if unknown and not self.tolerant:
            raise BadInput(
                "There is no such panel.",
                expected=" ".join(self.views),
                got=printable(" ".join(unknown)),
                remedy="Correct the name; `circuitlab panels` lists them.",
            )
        best = lambda score: self._best(score, model)
        read = {}
        for name, controls in setup.view.items():
            if name not in self.views:
                read |= {name: dict(controls)} if controls else {}
                continue
            kind = self.views[name]
            controls = controls if self.folder is None else with_absolute_files(kind, controls, self.folder)
            try:
                view = params_of(kind, live_controls(kind, controls, best))
            except UsageError:  # controls of another version
                if not self.tolerant:
                    raise
                view = dict(controls)
            if view != kind():
                read[name] = view
        return read

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
    """The index of a model's checkpoint nearest to a training step.

    Raises `BadInput` if it has no checkpoints, `BadModel` if they are not on this machine.
    """
    if not steps:
        need_checkpoints(ref, f"step {step}")
        raise BadInput(
            f"{ref.name} has no checkpoints.",
            expected="a model with a checkpoint series",
            got=f"step {step}",
            remedy="Leave the checkpoint out, or open a model with a series.",
        )
    return min(range(len(steps)), key=lambda i: abs(steps[i] - step))
