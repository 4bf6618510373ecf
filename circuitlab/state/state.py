"""What is looked at, and how, as one frozen value: steps of undo are States, and the words of a step become one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from circuitlab import notebook_html as html
from circuitlab.counting import number_of
from circuitlab.engine.codec import params_of
from circuitlab.errors import UsageError
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.model.text.reading import Reading

Compare = Literal["now", "reference", "difference"]
UNCUT = "uncut"  # the name of the reference when nothing is pinned and interventions are on: the same state without them
Kind = Literal["Q", "K", "V"]
View = TypeVar("View")  # the settings of a panel


@dataclass(frozen=True)
class Selection:
    """What is selected, the same in every panel.

    `heads`: the first one leads. `destination`, `source`: token positions, None for no selection (panels then use the last
    position). `token`: a vocabulary id; None for the token at the position that is read. `edge`: the (source, destination) heads
    of a composition through `edge_kind`. An edge is selected only while its destination leads, so heads and edge change through
    `with_heads` and `with_edge` alone. `locked`: selected by a click, so that hovering does not move it.
    """

    heads: tuple[Head, ...] = (Head(0, 0),)
    destination: int | None = None
    source: int | None = None
    locked: bool = False
    token: int | None = None
    edge: tuple[Head, Head] | None = None
    edge_kind: Kind = "K"
    target: Target = Target()

    def __post_init__(self) -> None:
        """However it is built: an edge goes when another head leads, and without an edge the kind is "K"."""
        if self.edge is not None and self.heads[:1] != self.edge[1:]:
            object.__setattr__(self, "edge", None)
        if self.edge is None:
            object.__setattr__(self, "edge_kind", "K")

    @property
    def head(self) -> Head:
        """The leading head."""
        return self.heads[0]

    def with_heads(self, *heads: Head) -> Selection:
        """These heads selected, the first one leading, and no edge."""
        return replace(self, heads=heads, edge=None)

    def with_edge(self, source: Head, destination: Head, kind: Kind, *others: Head) -> Selection:
        """This composition selected: its destination leads, then `others`; the source if none are given."""
        heads = tuple(dict.fromkeys((destination, *(others or (source,)))))
        return replace(self, heads=heads, edge=(source, destination), edge_kind=kind)

    def without_edge(self) -> Selection:
        """No composition selected: of its two heads only the destination stays."""
        return self if self.edge is None else self.with_heads(self.edge[1])

    def released(self) -> Selection:
        """No position locked and no composition selected."""
        return replace(self.without_edge(), destination=None, source=None, locked=False)

    def clamped(self, n_tokens: int) -> Selection:
        """Without positions outside `n_tokens`."""
        keep = lambda p: p if p is not None and 0 <= p < n_tokens else None
        destination, source = keep(self.destination), keep(self.source)
        return replace(self, destination=destination, source=source, locked=self.locked and destination is not None)


@dataclass(frozen=True)
class Pin:
    """A subject pinned for comparison, with the selection and the text it had."""

    label: str
    subject: Subject
    selection: Selection = Selection()
    text: str = ""


@dataclass(frozen=True, repr=False)
class State:
    """What is looked at. Text and tokens change together, through `with_text` and `with_tokens`.

    `text` is "" if token ids were typed directly. `bos`: whether the tokens begin with the beginning-of-sequence token.
    `front`: the spelling of another special token that they begin with in its place, "" for none.
    `special`: whether spellings of special tokens in the text are read as these tokens.
    `views`: each panel's control settings by panel name; a panel without an entry has its defaults.
    `edits`: interventions, each with an on/off switch. `pins`: pinned subjects to compare with, the newest first.
    `draft`: the editor's content while it differs from `text`, because the model cannot take it or it is not tokenized yet;
    everything else still refers to `text` and `tokens`.
    """

    model: ModelRef
    text: str = ""
    tokens: tuple[int, ...] = ()
    bos: bool = True
    edits: tuple[tuple[Intervention, bool], ...] = ()
    conventions: Conventions = Conventions()
    selection: Selection = Selection()
    views: Mapping[str, Any] = field(default_factory=dict[str, Any])
    pins: tuple[Pin, ...] = ()
    compare: Compare = "now"
    draft: str = ""
    special: bool = True
    front: str = ""

    @property
    def reading(self) -> Reading:
        """How its text becomes ids."""
        return Reading(self.front or self.bos, self.special)

    def __repr__(self) -> str:
        return f"<State {' · '.join(f'{name} {words}' for name, words in self.facts())}>"

    def _repr_html_(self) -> str:
        return html.table((), self.facts())

    def facts(self) -> list[tuple[str, str]]:
        """What is chosen, in names and words; what is not is left out."""
        at = self.selection
        words = {
            "model": self.model.name,
            "prompt": f"{number_of(len(self.tokens), 'token')}{': ' if self.text else ''}{html.shortened(self.text, 80)}",
            "heads": " ".join(map(str, at.heads[:8])) + (" …" if len(at.heads) > 8 else ""),
            "destination": "" if at.destination is None else str(at.destination),
            "source": "" if at.source is None else str(at.source),
            "edge": "" if at.edge is None else f"{at.edge[0]} → {at.edge[1]} through {at.edge_kind}",
            "target": str(at.target) if at.target != Target() else "",
            "interventions": str(len(self.subject.edits)) if self.edits else "",
            "compared with": "" if self.reference is None else self.reference.label,
        }
        return [(name, html.shortened(value)) for name, value in words.items() if value]

    @property
    def subject(self) -> Subject:
        """What requests are about now: model, tokens, enabled interventions and conventions."""
        return Subject(self.model, self.tokens, tuple(e for e, on in self.edits if on), self.conventions)

    @property
    def reference(self) -> Pin | None:
        """What differences are taken from: the newest pin, or else this state without its interventions, if it has any.

        A pin stays as it was pinned. The state without interventions follows this one, so it has text typed later too.
        """
        if self.pins or not self.subject.edits:
            return self.pinned
        return Pin(UNCUT, replace(self.subject, edits=()), self.selection, self.text)

    @property
    def pinned(self) -> Pin | None:
        """The newest pin, or None."""
        return self.pins[0] if self.pins else None

    def at(self, pin: Pin) -> State:
        """This state on the pinned subject: the same views and selection with the pin's model, text and interventions.

        The pin is its reference too, so that a panel requests on both sides what a comparison needs.
        """
        subject = pin.subject
        return replace(
            self,
            model=subject.model,
            text=pin.text,
            tokens=subject.tokens,
            edits=tuple((e, True) for e in subject.edits),
            conventions=subject.conventions,
            selection=self.selection.clamped(len(subject.tokens)),
            pins=(pin,),
        )

    def with_text(self, text: str, tokens: tuple[int, ...]) -> State:
        """This state with a new text and its tokens (with BOS if `bos`), and without a draft.

        Selected positions past the end are dropped; interventions that no longer fit are switched off.
        """
        edits = tuple((e, on and e.fits(len(tokens))) for e, on in self.edits)
        selection = self.selection.clamped(len(tokens))
        return replace(self, text=text, tokens=tokens, draft="", edits=edits, selection=selection)

    def with_tokens(self, tokens: tuple[int, ...]) -> State:
        """This state with tokens typed as ids, without text."""
        return self.with_text("", tokens)

    def select(self, **changes: Any) -> State:
        """This state with fields of its selection changed; `heads` and `edge` (with `edge_kind`) change as in `Selection`.

        Raises `ValueError` for heads beside an edge whose destination they do not lead with.
        """
        selection = self.selection.without_edge() if "edge" in changes else self.selection
        heads, edge, kind = changes.pop("heads", None), changes.pop("edge", None), changes.pop("edge_kind", "K")
        if edge is not None:
            if heads and heads[0] != edge[1]:
                raise ValueError(f"{heads[0]} cannot lead beside the edge {edge}: it is selected while its destination leads")
            selection = selection.with_edge(edge[0], edge[1], kind, *(heads or ()))
        elif heads is not None:
            selection = selection.with_heads(*heads)
        return replace(self, selection=replace(selection, **changes))

    def with_heads(self, *heads: Head) -> State:
        """This state with these heads selected, the first one leading."""
        return replace(self, selection=self.selection.with_heads(*heads))

    def with_edge(self, source: Head, destination: Head, kind: Kind) -> State:
        """This state with this composition selected."""
        return replace(self, selection=self.selection.with_edge(source, destination, kind))

    def without_edge(self) -> State:
        """This state without a selected composition."""
        return replace(self, selection=self.selection.without_edge())

    def view(self, name: str, kind: type[View]) -> View:
        """The settings of panel `name`, of type `kind`; the defaults if there are none.

        Words that were kept while the panel was not known, as that of a plug-in is before it is imported, are read now.
        """
        view = self.views.get(name)
        if isinstance(view, Mapping) and view:
            with suppress(UsageError):
                return params_of(kind, view)
        return view if isinstance(view, kind) else kind()

    def with_view(self, name: str, view: object) -> State:
        """This state with panel `name` set to `view`; settings that are all the default are not listed."""
        others = {n: v for n, v in self.views.items() if n != name}
        return replace(self, views=others if view == type(view)() else {**self.views, name: view})
