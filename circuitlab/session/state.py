"""Everything the person has chosen, as one frozen value. Undo, bookmark, session file and lesson step are all a State."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target

Compare = Literal["now", "reference", "difference"]


@dataclass(frozen=True)
class Selection:
    """What is pointed at, the same in every panel.

    `heads`: first one leads. `destination`, `source`: positions, None where nothing is selected (panels then use the last
    position). `token`: a vocabulary id that was asked for; None: the token of the prompt that is read. `edge`: (source,
    destination) heads of a composition through `edge_kind`. `locked`: chosen by a click, so hovering does not move it.
    """

    heads: tuple[Head, ...] = (Head(0, 0),)
    destination: int | None = None
    source: int | None = None
    locked: bool = False
    token: int | None = None
    edge: tuple[Head, Head] | None = None
    edge_kind: Literal["Q", "K", "V"] = "K"
    target: Target = Target()

    @property
    def head(self) -> Head:
        """The leading head."""
        return self.heads[0]

    def clamped(self, n_tokens: int) -> Selection:
        """Without positions at or past `n_tokens`."""
        keep = lambda p: p if p is not None and p < n_tokens else None
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
    `edits` are interventions with an on/off switch each. `pins[0]` is the reference of every difference.
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

    @property
    def subject(self) -> Subject:
        """What is asked about now: enabled interventions only."""
        return Subject(self.model, self.tokens, tuple(e for e, on in self.edits if on), self.conventions)

    @property
    def reference(self) -> Pin | None:
        """The pin that differences are taken to."""
        return self.pins[0] if self.pins else None

    def at(self, pin: Pin) -> State:
        """This state as it would be on the pinned subject: same views and selection, the pin's model, text and edits."""
        subject = pin.subject
        return replace(
            self,
            model=subject.model,
            text=pin.text,
            tokens=subject.tokens,
            edits=tuple((e, True) for e in subject.edits),
            conventions=subject.conventions,
            selection=self.selection.clamped(len(subject.tokens)),
        )

    def with_text(self, text: str, tokens: tuple[int, ...]) -> State:
        """New text with its tokens (BOS included where `bos`).

        A selection that points past the end is dropped; interventions that no longer fit are switched off.
        """
        edits = tuple((e, on and e.fits(len(tokens))) for e, on in self.edits)
        return replace(self, text=text, tokens=tokens, edits=edits, selection=self.selection.clamped(len(tokens)))

    def with_tokens(self, tokens: tuple[int, ...]) -> State:
        """Tokens typed as ids, without text."""
        return self.with_text("", tokens)

    def select(self, **changes: Any) -> State:
        """This state with fields of its selection changed."""
        return replace(self, selection=replace(self.selection, **changes))

    def view(self, name: str, kind: type[Any]) -> Any:
        """The settings of panel `name`, its defaults if it has none."""
        found = self.views.get(name)
        return found if isinstance(found, kind) else kind()

    def with_view(self, name: str, view: Any) -> State:
        """This state with panel `name` set to `view`."""
        return replace(self, views={**self.views, name: view})
