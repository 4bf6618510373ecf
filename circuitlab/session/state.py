"""Everything the person has chosen, as one frozen value. Undo, bookmark, session file and lesson step are all a State."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target

Compare = Literal["now", "reference", "difference"]
UNCUT = "uncut"  # what the reference beside a cut is called where nothing is pinned
Kind = Literal["Q", "K", "V"]


@dataclass(frozen=True)
class Selection:
    """What is pointed at, the same in every panel.

    `heads`: first one leads. `destination`, `source`: positions, None where nothing is selected (panels then use the last
    position). `token`: a vocabulary id that was asked for; None: the token of the prompt that is read. `edge`: (source,
    destination) heads of a composition through `edge_kind`; it is chosen only while its destination leads, and change comes
    through `with_heads` and `with_edge`. `locked`: chosen by a click, so hovering does not move it.
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
        """However it was made: no edge beside another head, no kind without an edge."""
        if self.edge is not None and self.heads[:1] != self.edge[1:]:
            object.__setattr__(self, "edge", None)
        if self.edge is None:
            object.__setattr__(self, "edge_kind", "K")

    @property
    def head(self) -> Head:
        """The leading head."""
        return self.heads[0]

    def with_heads(self, *heads: Head) -> Selection:
        """These heads, the first one leading; a chosen edge is let go of."""
        return replace(self, heads=heads, edge=None)

    def with_edge(self, source: Head, destination: Head, kind: Kind) -> Selection:
        """This composition: its later head leads, the earlier one stands behind it."""
        heads = (destination,) if source == destination else (destination, source)
        return replace(self, heads=heads, edge=(source, destination), edge_kind=kind)

    def without_edge(self) -> Selection:
        """No composition: the head that read is left alone."""
        return self if self.edge is None else self.with_heads(self.edge[1])

    def released(self) -> Selection:
        """No token is locked any more, and no composition is chosen."""
        return replace(self.without_edge(), destination=None, source=None, locked=False)

    def clamped(self, n_tokens: int) -> Selection:
        """Without positions outside `n_tokens`."""
        keep = lambda p: p if p is not None and 0 <= p < n_tokens else None
        destination, source = keep(self.destination), keep(self.source)
        return replace(self, destination=destination, source=source, locked=self.locked and destination is not None)


@dataclass(frozen=True)
class Pin:
    """A subject kept for comparison, with what was selected and read then."""

    label: str
    subject: Subject
    selection: Selection = Selection()
    text: str = ""


@dataclass(frozen=True)
class Note:
    """A remark of the person, tied to a panel or to nothing."""

    text: str
    panel: str = ""


@dataclass(frozen=True)
class Bookmark:
    """A State under a name, as its JSON text (a State cannot hold itself)."""

    label: str
    state: str


@dataclass(frozen=True)
class State:
    """The whole bench. Text and tokens change together, through `with_text` and `with_tokens`.

    `text` is "" when ids were typed directly. `bos` says whether the tokens begin with the beginning-of-sequence token.
    `views` holds each panel's control settings by panel name; a panel that is not in it stands at its defaults.
    `edits` are interventions with an on/off switch each. `pins`: what the person has kept to compare with, the newest first.
    `draft`: what stands in the editor where that is not `text`, because the model cannot take it or its tokens are still to come;
    everything else is about text and tokens, which stay what they were before it.
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
    notes: tuple[Note, ...] = ()
    bookmarks: tuple[Bookmark, ...] = ()
    draft: str = ""

    @property
    def subject(self) -> Subject:
        """What is asked about now: enabled interventions only."""
        return Subject(self.model, self.tokens, tuple(e for e, on in self.edits if on), self.conventions)

    @property
    def reference(self) -> Pin | None:
        """What differences are taken to: what is pinned, else, beside a cut, this very state without it.

        A pin stays what it was; the uncut state is read off this one, so it has the text that is typed after the cut.
        """
        if self.pins or not self.subject.edits:
            return self.pinned
        return Pin(UNCUT, replace(self.subject, edits=()), self.selection, self.text)

    @property
    def pinned(self) -> Pin | None:
        """What the person has pinned, the newest; None for nothing."""
        return self.pins[0] if self.pins else None

    def at(self, pin: Pin) -> State:
        """This state as it would be on the pinned subject: same views and selection, the pin's model, text and edits.

        The pin is its reference too, so that a panel asks on either side for what a comparison needs.
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
        """New text with its tokens (BOS included where `bos`); there is no draft any more.

        A selection that points past the end is dropped; interventions that no longer fit are switched off.
        """
        edits = tuple((e, on and e.fits(len(tokens))) for e, on in self.edits)
        selection = self.selection.clamped(len(tokens))
        return replace(self, text=text, tokens=tokens, draft="", edits=edits, selection=selection)

    def with_tokens(self, tokens: tuple[int, ...]) -> State:
        """Tokens typed as ids, without text."""
        return self.with_text("", tokens)

    def select(self, **changes: Any) -> State:
        """This state with fields of its selection changed; `heads` or `edge` (with `edge_kind`) as the two methods below do."""
        selection = self.selection.without_edge() if "edge" in changes else self.selection
        heads, edge, kind = changes.pop("heads", None), changes.pop("edge", None), changes.pop("edge_kind", "K")
        if edge is not None:
            selection = selection.with_edge(edge[0], edge[1], kind)
            if heads is not None:
                if heads[0] != selection.head:
                    raise ValueError(f"{heads[0]} cannot lead beside the edge {edge}: it is chosen while its destination leads")
                selection = replace(selection, heads=heads)
        elif heads is not None:
            selection = selection.with_heads(*heads)
        return replace(self, selection=replace(selection, **changes))

    def with_heads(self, *heads: Head) -> State:
        """These heads chosen, the first one leading."""
        return replace(self, selection=self.selection.with_heads(*heads))

    def with_edge(self, source: Head, destination: Head, kind: Kind) -> State:
        """This composition chosen."""
        return replace(self, selection=self.selection.with_edge(source, destination, kind))

    def without_edge(self) -> State:
        """No composition chosen."""
        return replace(self, selection=self.selection.without_edge())

    def view(self, name: str, kind: type[Any]) -> Any:
        """The settings of panel `name`, its defaults if it has none."""
        found = self.views.get(name)
        return found if isinstance(found, kind) else kind()

    def with_view(self, name: str, view: Any) -> State:
        """This state with panel `name` set to `view`."""
        return replace(self, views={**self.views, name: view})
