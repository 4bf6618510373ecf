"""The way back: from a State to the words of a step, which say only what differs from the words before it.

The law: a `Resolver` gives `setup_of(state, before, …).over(before)` the same State again, whatever `before` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.engine.codec import params_of
from circuitlab.engine.model_words import ModelWords
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, BadModel, UsageError
from circuitlab.model.catalogue.places import name_of
from circuitlab.model.origin import Builtin
from circuitlab.model.plain import to_json
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.model.text.reading import Front
from circuitlab.state.cuts import ablation
from circuitlab.state.state import Pin, State
from circuitlab.story.restating import fewest, meaning
from circuitlab.story.setup import FINAL, Checkpoint, Direction, Encoded, Index, Other, Prompt, Setup, Token, Views

_UNREAD = object()


class Names(Protocol):
    """What words need of the models they are about. May read files, and opens no model: for a worker thread."""

    def model(self, ref: ModelRef) -> str:
        """The name of a model, without its checkpoint."""
        ...

    def checkpoint(self, ref: ModelRef) -> Checkpoint:
        """The training step of a reference's checkpoint."""
        ...

    def token(self, ref: ModelRef, token: int) -> Token:
        """The text of a token where that names it, else its id."""
        ...

    def encode(self, ref: ModelRef, text: str, bos: Front, special: bool = True) -> tuple[int, ...] | None:
        """The ids of a text; None where there is no tokenizer or it cannot take the text."""
        ...

    def bos(self, ref: ModelRef, prompt: Prompt) -> bool:
        """Whether ids begin with BOS where no word says so, as the `Resolver` decides it."""
        ...


class StoreNames:
    """`Names` of the models of a store. `names`: what a session calls its models; others are named by their source."""

    def __init__(self, store: ModelStore, names: Mapping[ModelRef, str] | None = None) -> None:
        self.store, self.names = store, names or {}

    def model(self, ref: ModelRef) -> str:
        """A name of `names`, else the source, of a shipped model and one of the catalogue without its kind."""
        base = replace(ref, checkpoint=None)
        return self.names.get(base) or name_of(base) or (base.origin.where if isinstance(base.origin, Builtin) else base.source)

    def _words(self, ref: ModelRef) -> ModelWords | None:
        """None for a model of which nothing is known any more: it is spoken of in ids."""
        try:
            return self.store.words(ref)
        except BadModel:
            return None

    def checkpoint(self, ref: ModelRef) -> Checkpoint:
        """The training step, `FINAL` for the final weights; its number in the series where no step is known."""
        if ref.checkpoint is None:
            return FINAL
        words = self._words(ref)
        return Index(ref.checkpoint) if words is None else words.steps[ref.checkpoint]

    def token(self, ref: ModelRef, token: int) -> Token:
        """Its text if the tokenizer reads that as this one token."""
        words = self._words(ref)
        if words is None or words.tokenizer is None:
            return token
        try:
            text = words.tokenizer.decode((token,))
            return text if text and words.tokenizer.find(text) == token else token
        except BadInput:
            return token

    def encode(self, ref: ModelRef, text: str, bos: Front, special: bool = True) -> tuple[int, ...] | None:
        """The ids of a text."""
        words = self._words(ref)
        try:
            return None if words is None or words.tokenizer is None else words.tokenizer.encode(text, bos, special)
        except BadInput:
            return None

    def bos(self, ref: ModelRef, prompt: Prompt) -> bool:
        """As the model was trained for a text; of ids, whether the first one is BOS."""
        words = self._words(ref)
        first = None if words is None or words.tokenizer is None else words.tokenizer.bos
        if isinstance(prompt, str):
            return words is not None and words.prepend_bos and first is not None
        ids = prompt.ids if isinstance(prompt, Encoded) else prompt if isinstance(prompt, tuple) else ()
        return bool(ids) and ids[0] == first


def setup_of(state: State, before: Setup, names: Names, views: Views, ids: bool = False) -> Setup:
    """The words of a State over the words `before`.

    `ids`: the prompt's token ids are said beside its text in any case, for a file that outlives a tokenizer.
    """
    whole = replace(_words(state, names, ids), compare=state.compare)
    at_pins = tuple(_at(pin, state, names) for pin in state.pins)
    whole = replace(whole, pin=tuple(_other(pin, state, whole, names) for pin in state.pins))
    bos, *pins_bos = (names.bos(one.model, _prompt(one, names, False)) for one in (state, *at_pins))
    setup = fewest(whole, lambda words: meaning(words.over(before), bos, tuple(pins_bos)))
    return replace(setup, view=_views(state, before, views))


def _words(state: State, names: Names, ids: bool = False) -> Setup:
    """Every word of a State's subject and selection."""
    selection, ref = state.selection, state.model
    cut = _cut(state)
    return Setup(
        model=names.model(ref),
        checkpoint=names.checkpoint(ref),
        prompt=_prompt(state, names, ids),
        bos=state.bos,
        front=state.front,
        special=state.special,
        draft=state.draft,
        heads=tuple(map(str, selection.heads)),
        cut=cut,
        edits=state.edits if cut is None else None,
        conventions=state.conventions,
        edge=() if selection.edge is None else (str(selection.edge[0]), str(selection.edge[1])),
        edge_kind=None if selection.edge is None else selection.edge_kind,
        destination=_position(selection.destination),
        source=_position(selection.source),
        locked=selection.locked,
        token="" if selection.token is None else names.token(ref, selection.token),
        target=_target(selection.target, ref, names),
    )


def _position(position: int | None) -> int | tuple[()]:
    return () if position is None else position


def _cut(state: State) -> tuple[str, ...] | None:
    """The heads whose ablation is all that the interventions do, None where they do something else."""
    heads = tuple(Head(edit.site.layer, edit.site.heads[0]) for edit, _ in state.edits if edit.site.heads)
    same = state.edits == tuple((ablation(head), True) for head in heads) and len(set(heads)) == len(heads)
    return tuple(map(str, heads)) if same else None


def _target(target: Target, ref: ModelRef, names: Names) -> tuple[Token, ...] | Direction:
    return Direction(target.direction) if target.direction else tuple(names.token(ref, token) for token in target.tokens)


def _prompt(state: State, names: Names, ids: bool) -> Prompt:
    encoded = names.encode(state.model, state.text, *state.reading)
    if encoded == state.tokens and not (ids and state.text):
        return state.text
    return Encoded(state.text, state.tokens) if state.text else state.tokens


def _at(pin: Pin, state: State, names: Names) -> State:
    """The State of a pin, with its own selection, and no draft."""
    subject = pin.subject
    bos, model, tokens = names.bos(subject.model, subject.tokens), subject.model, subject.tokens
    front = "" if bos or not state.front or names.encode(model, "", state.front) != tokens[:1] else state.front
    return replace(state.at(pin), selection=pin.selection, draft="", pins=(), bos=bos, front=front)


def _other(pin: Pin, state: State, whole: Setup, names: Names) -> Other:
    """A pin in the words that differ from those of the whole State."""
    at_pin = _at(pin, state, names)
    words = replace(_words(at_pin, names), draft=None)
    bos = names.bos(at_pin.model, _prompt(at_pin, names, False))
    return Other(fewest(words, lambda fewer: meaning(Other(fewer).of(whole), bos)), pin.label)


# -- settings of panels ---------------------------------------------------------------------------------------------------------


def _views(state: State, before: Setup, views: Views) -> dict[str, JsonDict]:
    """The controls of panels that differ from those before, or from their default where the words before do not set them."""
    by_panel = {}
    for name in dict.fromkeys((*state.views, *before.view)):
        view, words = state.views.get(name), before.view.get(name, {})
        controls = _controls(view, words, views.get(name))
        if controls or (words and view is None and name not in views):
            by_panel[name] = controls
    return by_panel


def _controls(view: Any, before: JsonObject, kind: type[object] | None) -> JsonDict:
    """The controls of one panel that its words `before` do not give already; `view` None: all are the default."""
    if kind is None or isinstance(view, Mapping):  # of a panel that is not known here
        return {n: v for n, v in (view or {}).items() if n not in before or before[n] != v}
    default = to_json(kind())
    now = default if view is None else to_json(view)
    return {n: v for n, v in now.items() if v != _control(kind, n, before[n] if n in before else default[n])}


def _control(kind: type[object], name: str, value: object) -> object:
    """One control as it would be written from its value; `_UNREAD` where the value cannot be read or is a "best …" choice."""
    try:
        return to_json(params_of(kind, {name: value}))[name]
    except UsageError:
        return _UNREAD
