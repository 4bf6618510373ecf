"""The block of a lesson's step. Every key may be left out: then the setting of the step before stays.

    model = "attn-only-0l"          # as on the command line; `construct:…` too. A new model drops heads, cut and edge
    checkpoint = 3500               # the checkpoint nearest to this training step; "final" (the default with a new model)
    text = "…"                      # the prompt. A new prompt drops destination and source
    tokens = [0, 5, 9]              #   or ids, as they are
    random = { block = 25, repeats = 2, seed = 0 }    # or repeated random tokens of the model's vocabulary, after its BOS
    heads = ["L1H1"]                # the first one leads; "best prefix_matching": the head with the largest such score of
                                    #   `head_scores`, computed when the step is shown. heads = "best …" is a list of one
    cut = ["L0H1"]                  # heads to zero-ablate, "best …" too; [] none. Without a pin the reference is the uncut state
    edge = ["L0H3", "L1H6"]         # a composition, source and destination head, "best …" too; edge_kind = "Q" "K" "V". Its
                                    # destination leads, then the `heads` of the same step; new heads deselect the edge
    destination = 12                # a position, negative from the end; or a text: its last token where it occurs last
    source = { text = " cat", occurrence = 1 }        # where it occurs first; -1 last (destination and source alike)
    token = " the"                  # the selected token of the vocabulary; "" none
    target = [" cat", " dog"]       # what attributions measure: one token, or the first minus the second; [] the next token
    pin = { model = "…" }           # the reference: this same state with another model, checkpoint, text, tokens, random, cut
    pin = "before"                  #   or the state that the step before left; "none" removes the pin
    compare = "difference"          # now, reference, difference (the default with a new pin)
    show = ["bigram", "predictions"]  # exactly these panels are shown beside the lesson; the last one is highlighted
    arrange = "Explore"             # or a whole arrangement of the window, with the panels of `show` in front
    [view.attention]                # controls of a panel by name, as its View has them (`circuitlab panels`)
    show = "scores"

`Setup.over` puts a step's settings over those before it. A State needs the open model (`lessons/state`), as tokens given by text
need its tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from circuitlab.errors import BadInput, UsageError
from circuitlab.model.subject import Head
from circuitlab.session.state import Compare

Refuse = Callable[[str, str, str, object], BadInput]  # (key, what, expected, got)
Kind = Literal["Q", "K", "V"]
BEST = "best "


@dataclass(frozen=True)
class Random:
    """Repeated random tokens: a block drawn with `seed`, `repeats` times."""

    block: int = 25
    repeats: int = 2
    seed: int = 0


@dataclass(frozen=True)
class Occurrence:
    """The last token of a text's n-th occurrence in the prompt, counted from 1, or from −1 at the end."""

    text: str
    occurrence: int = -1


Prompt = str | tuple[int, ...] | Random
Where = int | Occurrence


@dataclass(frozen=True)
class Other:
    """Another subject than the step's own, which it shares unless set here. `cut` (): no head is ablated."""

    model: str | None = None
    checkpoint: int | Literal["final"] | None = None
    prompt: Prompt | None = None
    cut: tuple[str, ...] | None = None

    def of(self, setup: Setup) -> Setup:
        """The step's setup on this subject. On another model, heads and cut stay only if they are "best …" choices."""
        live_only = lambda heads: heads if self.model is None else tuple(h for h in heads or () if h.startswith(BEST)) or None
        changes = Setup(self.model, self.checkpoint, self.prompt, live_only(setup.heads), self.cut or live_only(setup.cut))
        setup_there = replace(changes, destination=setup.destination, source=setup.source).over(setup)
        return replace(setup_there, pin=None, cut=() if self.cut == () else setup_there.cut)


@dataclass(frozen=True)
class Setup:
    """The settings of a step, see the module; None: not set."""

    model: str | None = None
    checkpoint: int | Literal["final"] | None = None
    prompt: Prompt | None = None
    heads: tuple[str, ...] | None = None
    cut: tuple[str, ...] | None = None
    edge: tuple[str, str] | None = None
    edge_kind: Kind | None = None
    destination: Where | None = None
    source: Where | None = None
    token: str | None = None
    target: tuple[str, ...] | None = None
    pin: Other | Setup | Literal["before", "none"] | None = None
    compare: Compare | None = None
    show: tuple[str, ...] = ()
    arrange: str = ""
    view: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def over(self, before: Setup) -> Setup:
        """These settings over the settings `before`."""
        if self.model is not None:
            before = replace(before, checkpoint="final", heads=None, cut=None, edge=None)
        if self.prompt is not None:
            before = replace(before, destination=None, source=None)
        if self.heads is not None or self.edge is not None:  # heads and edge are one choice
            before = replace(before, heads=None, edge=None, edge_kind=None)
        plain = ("model", "checkpoint", "prompt", "heads", "cut", "edge", "edge_kind", "destination", "source", "token", "target")
        changes = {n: getattr(self, n) for n in (*plain, "pin", "compare") if getattr(self, n) is not None}
        if self.pin is not None and self.compare is None:
            changes["compare"] = "now" if self.pin == "none" else "difference"
        if self.pin == "before":
            changes["pin"] = replace(before, pin=None)
        if self.show or self.arrange:
            changes |= {"show": self.show, "arrange": self.arrange}
        names = dict.fromkeys((*before.view, *self.view))
        view = {name: {**before.view.get(name, {}), **self.view.get(name, {})} for name in names}
        return replace(before, **changes, view=view)


_OTHER = ("model", "checkpoint", "text", "tokens", "random", "cut")
_KNOWN = tuple(dict.fromkeys((*_OTHER, *(f.name for f in fields(Setup) if f.name != "prompt"))))


def read_setup(table: Mapping[str, Any], refuse: Refuse) -> Setup:
    """The setup of a TOML block. Raises the error that `refuse(key, what, expected, got)` returns."""
    for key in table:
        if key not in _KNOWN:
            raise refuse(key, "A step has no such key.", " ".join((*_KNOWN, "values")), key)
    other = read_other(table, refuse)
    strings = {n: _strings(table, n, refuse) for n in ("heads", "edge", "target", "show") if n in table}
    for name, most in (("edge", 2), ("target", 2)):
        if len(strings.get(name, ())) > most or (name == "edge" and name in strings and len(strings[name]) < 2):
            raise refuse(name, f"{name} cannot be read.", "two heads" if name == "edge" else "at most two texts", table[name])
    for name in ("heads", "edge"):
        _check_heads(name, strings.get(name, ()), refuse)
    for name in ("token", "arrange"):
        if name in table and not isinstance(table[name], str):
            raise refuse(name, f"{name} cannot be read.", "a text", table[name])
    edge = strings.get("edge")
    return Setup(
        other.model,
        other.checkpoint,
        other.prompt,
        strings.get("heads"),
        other.cut,
        None if edge is None else (edge[0], edge[1]),
        _choice(table, "edge_kind", get_args(Kind), refuse),
        _where(table, "destination", refuse),
        _where(table, "source", refuse),
        table.get("token"),
        strings.get("target"),
        _pin(table, refuse),
        _choice(table, "compare", get_args(Compare), refuse),
        strings.get("show", ()),
        table.get("arrange", ""),
        _view(table, refuse),
    )


def read_other(table: Mapping[str, Any], refuse: Refuse) -> Other:
    """Model, checkpoint, prompt and cut of a table."""
    model, checkpoint = table.get("model"), table.get("checkpoint")
    if model is not None and not (isinstance(model, str) and model.strip()):
        raise refuse("model", "model cannot be read.", "a model's name, as on the command line", model)
    if checkpoint is not None and checkpoint != "final" and not (_whole(checkpoint) and checkpoint >= 0):
        raise refuse("checkpoint", "checkpoint cannot be read.", 'a training step, or "final"', checkpoint)
    cut = _strings(table, "cut", refuse) if "cut" in table else None
    _check_heads("cut", cut or (), refuse)
    return Other(model, checkpoint, _prompt(table, refuse), cut)


def _prompt(table: Mapping[str, Any], refuse: Refuse) -> Prompt | None:
    prompts = [name for name in ("text", "tokens", "random") if name in table]
    if len(prompts) > 1:
        raise refuse(prompts[1], "There are two prompts.", "one of text, tokens, random", " ".join(prompts))
    if not prompts:
        return None
    value = table[prompts[0]]
    if prompts == ["text"] and isinstance(value, str):
        return value
    if prompts == ["tokens"] and isinstance(value, list) and value and all(_whole(v) and v >= 0 for v in value):
        return tuple(value)
    sizes = {"block": 1, "repeats": 1, "seed": 0}
    if (
        prompts == ["random"]
        and isinstance(value, dict)
        and all(_whole(v) and v >= sizes.get(k, v + 1) for k, v in value.items())
    ):
        return Random(**value)
    expected = {"text": "a text", "tokens": "[0, 5, 9]", "random": "{ block = 25, repeats = 2, seed = 0 }"}[prompts[0]]
    raise refuse(prompts[0], f"{prompts[0]} cannot be read.", expected, value)


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _strings(table: Mapping[str, Any], name: str, refuse: Refuse) -> tuple[str, ...]:
    value = [table[name]] if isinstance(table[name], str) else table[name]
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise refuse(name, f"{name} cannot be read.", "a list of texts", table[name])
    return tuple(value)


def _check_heads(name: str, texts: tuple[str, ...], refuse: Refuse) -> None:
    for text in texts:
        try:
            _ = text.startswith(BEST) or Head.parse(text)
        except UsageError as error:
            raise refuse(name, error.what, f'{error.expected}, or "best prefix_matching"', text) from error


def _choice(table: Mapping[str, Any], name: str, choices: tuple[str, ...], refuse: Refuse) -> Any:
    value = table.get(name)
    if value is not None and value not in choices:
        raise refuse(name, f"{name} cannot be read.", " ".join(choices), value)
    return value


def _where(block_table: Mapping[str, Any], name: str, refuse: Refuse) -> Where | None:
    value = block_table.get(name)
    if value is None or _whole(value):
        return value
    table: Any = {"text": value} if isinstance(value, str) else value
    if isinstance(table, dict) and set(table) <= {"text", "occurrence"} and isinstance(table.get("text"), str):
        occurrence = table.get("occurrence", -1)
        if table["text"] and _whole(occurrence) and occurrence:
            return Occurrence(table["text"], occurrence)
    raise refuse(name, f"{name} cannot be read.", '12, " cat" or { text = " cat", occurrence = 1 }', value)


def _pin(table: Mapping[str, Any], refuse: Refuse) -> Other | Literal["before", "none"] | None:
    value = table.get("pin")
    if value is None or value == "before" or value == "none":
        return value
    if not isinstance(value, dict) or not value or not set(value) <= set(_OTHER):
        raise refuse("pin", "pin cannot be read.", f'"before", "none", or a table of {" ".join(_OTHER)}', value)
    return read_other(value, lambda key, *rest: refuse("pin", *rest))


def _view(table: Mapping[str, Any], refuse: Refuse) -> Mapping[str, Mapping[str, Any]]:
    value = table.get("view", {})
    if not isinstance(value, dict) or not all(isinstance(v, dict) for v in value.values()):
        raise refuse("view", "view cannot be read.", "[view.PANEL] tables", value)
    return value
