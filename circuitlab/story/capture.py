"""The way back: from a State to the words of a step, which say only what differs from the words before it.

The law: a `Resolver` gives `setup_of(state, before, …).over(before)` the same State again, whatever `before` says. And where a
step comes to stand behind other words, `restated` says what it showed over those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from circuitlab.engine.codec import params_of
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.plain import to_json
from circuitlab.model.subject import Conventions, Head, ModelRef, Target
from circuitlab.session.cuts import ablation
from circuitlab.session.state import Pin, State
from circuitlab.story.setup import BEST, FINAL, SELECTION, SUBJECT, Checkpoint, Direction, Encoded, Other, Prompt, Setup, Token

View = Mapping[str, Mapping[str, Any]]  # controls by panel

_UNREAD = object()
_GROUPS = (  # words that are left out together; those that make others void, as a model does, come before them
    *((name,) for name in (*SUBJECT, "draft")),
    ("heads", "edge", "edge_kind"),
    *((name,) for name in (*SELECTION, "pin", "compare")),
)


class Names(Protocol):
    """What words need of the models they are about. May open files: for a worker thread."""

    def model(self, ref: ModelRef) -> str:
        """The name of a model, without its checkpoint."""
        ...

    def checkpoint(self, ref: ModelRef) -> Checkpoint:
        """The training step of a reference's checkpoint."""
        ...

    def token(self, ref: ModelRef, token: int) -> Token:
        """The text of a token where that names it, else its id."""
        ...

    def encode(self, ref: ModelRef, text: str, bos: bool) -> tuple[int, ...] | None:
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
        """A name of `names`, else the source, of a shipped model without its kind."""
        base = replace(ref, checkpoint=None)
        return self.names.get(base) or base.source.removeprefix("builtin:")

    def checkpoint(self, ref: ModelRef) -> Checkpoint:
        """The training step, `FINAL` for the final weights."""
        return FINAL if ref.checkpoint is None else self.store.open(ref).opened.steps[ref.checkpoint]

    def token(self, ref: ModelRef, token: int) -> Token:
        """Its text if the tokenizer reads that as this one token."""
        tokenizer = self.store.open(ref).opened.weights.tokenizer
        if tokenizer is None:
            return token
        try:
            text = tokenizer.decode((token,))
            return text if text and tokenizer.find(text) == token else token
        except BadInput:
            return token

    def encode(self, ref: ModelRef, text: str, bos: bool) -> tuple[int, ...] | None:
        """The ids of a text."""
        tokenizer = self.store.open(ref).opened.weights.tokenizer
        try:
            return None if tokenizer is None else tokenizer.encode(text, bos)
        except BadInput:
            return None

    def bos(self, ref: ModelRef, prompt: Prompt) -> bool:
        """As the model was trained for a text; of ids, whether the first one is BOS."""
        weights = self.store.open(ref).opened.weights
        first = None if weights.tokenizer is None else weights.tokenizer.bos
        if isinstance(prompt, str):
            return weights.config.prepend_bos and first is not None
        ids = prompt.ids if isinstance(prompt, Encoded) else prompt if isinstance(prompt, tuple) else ()
        return bool(ids) and ids[0] == first


def setup_of(state: State, before: Setup, names: Names, views: Mapping[str, type[Any]], ids: bool = False) -> Setup:
    """The words of a State over the words `before`. `views`: view types by panel.

    `ids`: the prompt's token ids are said beside its text in any case, for a file that outlives a tokenizer.
    """
    whole = replace(_words(state, names, ids), compare=state.compare)
    at_pins = tuple(_at(pin, state, names) for pin in state.pins)
    whole = replace(whole, pin=tuple(_other(pin, state, whole, names) for pin in state.pins))
    bos, *pins_bos = (names.bos(one.model, _prompt(one, names, False)) for one in (state, *at_pins))
    said = _least(whole, lambda words: _explicit(words.over(before), bos, tuple(pins_bos)))
    return replace(said, view=_views(state, before, views))


def _words(state: State, names: Names, ids: bool = False) -> Setup:
    """Every word of a State's subject and selection."""
    selection, ref = state.selection, state.model
    cut = _cut(state)
    return Setup(
        model=names.model(ref),
        checkpoint=names.checkpoint(ref),
        prompt=_prompt(state, names, ids),
        bos=state.bos,
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
    encoded = names.encode(state.model, state.text, state.bos)
    if encoded == state.tokens and not (ids and state.text):
        return state.text
    return Encoded(state.text, state.tokens) if state.text else state.tokens


def _at(pin: Pin, state: State, names: Names) -> State:
    """The State of a pin, with its own selection, and no draft."""
    subject = pin.subject
    at_pin = replace(state.at(pin), selection=pin.selection, draft="", pins=(), bos=names.bos(subject.model, subject.tokens))
    return at_pin


def _other(pin: Pin, state: State, whole: Setup, names: Names) -> Other:
    """A pin in the words that differ from those of the whole State."""
    at_pin = _at(pin, state, names)
    words = replace(_words(at_pin, names), draft=None)
    bos = names.bos(at_pin.model, _prompt(at_pin, names, False))
    return Other(_least(words, lambda said: _explicit(Other(said).of(whole), bos)), pin.label)


def _least(words: Setup, result: Callable[[Setup], Any]) -> Setup:
    """As few of the words as have the same result."""
    whole = result(words)
    for group in _GROUPS:
        if any(getattr(words, name) is not None for name in group):
            fewer = replace(words, **dict.fromkeys(group))
            if result(fewer) == whole:
                words = fewer
    for name in ("edge", "edge_kind"):
        fewer = replace(words, **{name: None})
        if result(fewer) == whole:
            words = fewer
    return words


def _explicit(setup: Setup, bos: bool | None, pins: tuple[bool, ...] = ()) -> tuple[Setup, ...]:
    """The words of a setup with every default said, and those of its pins: equal where the States are equal.

    `bos`, `pins`: what no word about BOS means, for the setup and for each pin; None where the model is not asked. Words of the
    window's layout are left out.
    """
    edge = setup.edge or ()
    heads = setup.heads or (str(Head(0, 0)),)
    edits, cut = setup.edits, setup.cut
    if edits is None and not any(head.startswith(BEST) for head in cut or ()):
        edits, cut = tuple((ablation(Head.parse(head)), True) for head in cut or ()), None
    others = setup.pin if isinstance(setup.pin, tuple) else ()
    explicit = replace(
        setup,
        checkpoint=FINAL if setup.checkpoint is None else setup.checkpoint,
        bos=bos if setup.bos is None else setup.bos,
        draft=setup.draft or "",
        heads=tuple(dict.fromkeys((edge[1], *(setup.heads or edge[:1])))) if edge else heads,
        cut=cut,
        edits=edits,
        conventions=setup.conventions or Conventions(),
        edge=edge,
        edge_kind=(setup.edge_kind or "K") if edge else None,
        destination=() if setup.destination is None else setup.destination,
        source=() if setup.source is None else setup.source,
        locked=setup.destination not in (None, ()) if setup.locked is None else setup.locked,
        token=setup.token or "" if setup.token != 0 else 0,
        target=setup.target or (),
        pin=None,
        compare=setup.compare or "now",
        show=(),
        arrange="",
        alone=False,
        zoom={},
        play=None,
        view={},
        unknown={},
    )
    at = (one.of(setup) if isinstance(one, Other) else one for one in others)
    labels = tuple(Setup(draft=one.label) if isinstance(one, Other) else Setup() for one in others)
    meanings: tuple[bool | None, ...] = (*pins, *(None for _ in others))
    return explicit, *labels, *(_explicit(one, meaning)[0] for one, meaning in zip(at, meanings, strict=False))


# -- words over other words ---------------------------------------------------------------------------------------------------


def restated(whole: Setup, before: Setup, views: Mapping[str, type[Any]]) -> Setup:
    """The words that say over `before` what the complete setup `whole` says: `restated(…).over(before)` shows the same.

    No model is needed for it, and "best …" choices stay. `whole` must name its model and its prompt where `before` does: no word
    takes these back. `views`: view types by panel.
    """
    explicit = _explicit(whole, None)[0]
    pins = whole.pin if isinstance(whole.pin, tuple) else ()
    words = replace(explicit, cut=None if whole.edits is not None else whole.cut or (), edits=whole.edits, pin=pins)
    said = _least(words, lambda fewer: _explicit(fewer.over(before), None))
    if _layout(whole) not in (("", (), False), _layout(before)):
        said = replace(said, show=whole.show, arrange=whole.arrange, alone=whole.alone)
    return replace(said, zoom=whole.zoom, play=whole.play, view=_over(whole.view, before.view, views), unknown=whole.unknown)


def same_view(shown: Setup, whole: Setup, views: Mapping[str, type[Any]]) -> bool:
    """Whether `shown` shows what the complete setup `whole` does, however its words put it."""
    placed = _layout(whole) in (("", (), False), _layout(shown))
    own = lambda setup: (setup.zoom, setup.play, setup.unknown)
    same = placed and own(shown) == own(whole) and not _over(whole.view, shown.view, views)
    return same and _explicit(shown, None) == _explicit(whole, None)


def _layout(setup: Setup) -> tuple[str, tuple[str, ...], bool]:
    return setup.arrange, setup.show, setup.alone


def _over(whole: View, before: View, views: Mapping[str, type[Any]]) -> dict[str, dict[str, Any]]:
    """The controls of `whole` over those `before`; one that only these have is set back to its default."""
    said = {}
    for name in dict.fromkeys((*whole, *before)):
        controls, others = whole.get(name, {}), before.get(name, {})
        default = to_json(views[name]()) if name in views else {}
        changed = {n: v for n, v in controls.items() if v != others.get(n, default.get(n, _UNREAD))}
        back = {n: default[n] for n, v in others.items() if n not in controls and n in default and v != default[n]}
        if changed or back or (others and not controls and name not in views):
            said[name] = changed | back
    return said


# -- settings of panels ---------------------------------------------------------------------------------------------------------


def _views(state: State, before: Setup, views: Mapping[str, type[Any]]) -> dict[str, dict[str, Any]]:
    """The controls of panels that differ from those before, or from their default where the words before do not set them."""
    said = {}
    for name in dict.fromkeys((*state.views, *before.view)):
        view, words = state.views.get(name), before.view.get(name, {})
        controls = _controls(view, words, views.get(name))
        if controls or (words and view is None and name not in views):
            said[name] = controls
    return said


def _controls(view: Any, before: Mapping[str, Any], kind: type[Any] | None) -> dict[str, Any]:
    """The controls of one panel that its words `before` do not give already; `view` None: all are the default."""
    if kind is None or isinstance(view, Mapping):  # of a panel that is not known here
        return {n: v for n, v in (view or {}).items() if n not in before or before[n] != v}
    default = to_json(kind())
    now = default if view is None else to_json(view)
    return {n: v for n, v in now.items() if v != _control(kind, n, before[n] if n in before else default[n])}


def _control(kind: type[Any], name: str, value: Any) -> Any:
    """One control as it would be written from its value; `_UNREAD` where the value cannot be read or is a "best …" choice."""
    try:
        return to_json(params_of(kind, {name: value}))[name]
    except UsageError:
        return _UNREAD
