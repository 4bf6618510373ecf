"""The words of a step as text: the TOML block of a lesson, and the same keys in the JSON of a session file. All may be left out.

    model = "attn-only-0l"          # as on the command line; `construct:…` too; or a name of the session's table of models. A new
                                    #   model drops heads, cut, edits and edge
    checkpoint = 3500               # the checkpoint nearest to this training step; "final" (the default with a new model)
    text = "…"                      # the prompt. A new prompt drops destination and source
    tokens = [0, 5, 9]              #   or ids, as they are; text beside them is only shown
    random = { block = 25, repeats = 2, seed = 0 }    # or repeated random tokens of the model's vocabulary, after its BOS
    bos = false                     # whether the text's ids begin with BOS; by default as the model was trained
    draft = "…"                     # the editor's content that the model could not take, beside the prompt
    heads = ["L1H1"]                # the first one leads; "best prefix_matching": the head with the largest such score of
                                    #   `head_scores`, computed when the step is shown. heads = "best …" is a list of one
    cut = ["L0H1"]                  # heads to zero-ablate, "best …" too; [] none. Without a pin the reference is the uncut state
    edits = [{ op = "zero", site = "pattern", layer = 1, heads = [0], positions = [9], sources = [4] }]
                                    #   or interventions of every kind, with value, source, align, from (the path's sender) and
                                    #   on = false where one is switched off
    conventions = { fold_norm = false, centre = false, dtype = "float64" }    # those that are not the default; {} all default
    edge = ["L0H3", "L1H6"]         # a composition, source and destination head, "best …" too; edge_kind = "Q" "K" "V". Its
                                    #   destination leads, then the `heads` of the same step; new heads deselect the edge; [] none
    destination = 12                # a position, negative from the end; or a text: its last token where it occurs last; [] none
    source = { text = " cat", occurrence = 1 }        # where it occurs first; -1 last (destination and source alike)
    locked = false                  # the pointer moves the destination; by default it stays where a step puts it
    token = " the"                  # the selected token of the vocabulary, or its id; "" none
    target = [" cat", " dog"]       # what attributions measure: one token, or the first minus the second; ids too; [] the next
                                    #   token; { direction = [0.1, …] } a direction of the normalised final residual stream
    pin = { model = "…" }           # the reference: this same state with another subject or selection (the words above), and
                                    #   `label`, its name; a list: several pins, the first is the reference
    pin = "before"                  #   or the state that the step before left; "none" removes the pins
    compare = "difference"          # now, reference, difference (the default with a new pin)
    show = ["bigram", "predictions"]  # exactly these panels are shown beside the text; the last one is highlighted
    arrange = "Explore"             # or a whole arrangement of the window, with the panels of `show` in front
    alone = true                    # the panel shown last has the whole window
    zoom = { "attention/pattern" = [0, 4, 12, 18] }   # the visible part of a figure: left, bottom, right, top in its own units
    play = [0, "final"]             # the training steps between which a film plays
    [view.attention]                # controls of a panel by name, as its View has them (`circuitlab panels`); without any,
    show = "scores"                 #   each is the default again

`read_setup(table_of(setup))` is `setup` again.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Literal, get_args

from circuitlab.errors import BadInput, UsageError
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.plain import from_json, to_json
from circuitlab.model.subject import Conventions, Head
from circuitlab.session.state import Compare, Kind
from circuitlab.story.setup import (
    BEST,
    FINAL,
    SELECTION,
    SUBJECT,
    Box,
    Checkpoint,
    Direction,
    Edits,
    Encoded,
    Index,
    Occurrence,
    Other,
    Prompt,
    Random,
    Setup,
    Token,
    Where,
)

Refuse = Callable[[str, str, str, object], BadInput]  # (key, what, expected, got)

_PROMPTS = ("text", "tokens", "random")
SUBJECT_KEYS = tuple(key for name in SUBJECT for key in (_PROMPTS if name == "prompt" else (name,)))
_PIN = (*SUBJECT_KEYS, *SELECTION, "label")
KEYS = tuple(dict.fromkeys((*SUBJECT_KEYS, *(f.name for f in fields(Setup) if f.name not in ("prompt", "unknown")))))
_EDIT = ("op", "site", "layer", "heads", "positions", "sources", "value", "source", "align", "from", "on")


# -- reading ------------------------------------------------------------------------------------------------------------------


def read_setup(table: Mapping[str, Any], refuse: Refuse, tolerant: bool = False) -> Setup:
    """The setup of a table of words. Raises the error that `refuse(key, what, expected, got)` returns.

    `tolerant`: words that are not known are kept in `unknown`, otherwise they are refused.
    """
    unknown = {key: value for key, value in table.items() if key not in KEYS}
    if unknown and not tolerant:
        key = next(iter(unknown))
        raise refuse(key, "A step has no such key.", " ".join((*KEYS, "values")), key)
    return Setup(
        **_subject(table, refuse),
        **_selection(table, refuse),
        draft=_text(table, "draft", refuse),
        pin=_pin(table, refuse, tolerant),
        compare=_choice(table, "compare", get_args(Compare), refuse),
        show=_strings(table, "show", refuse) or (),
        arrange=_text(table, "arrange", refuse) or "",
        alone=_truth(table, "alone", refuse) or False,
        zoom=_zoom(table, refuse),
        play=_play(table, refuse),
        view=_view(table, refuse),
        unknown=unknown,
    )


def read_other(table: Mapping[str, Any], refuse: Refuse) -> Other:
    """The subject of a table that may hold more: model, checkpoint, prompt, cut and so on."""
    return Other(Setup(**_subject(table, refuse)))


def _subject(table: Mapping[str, Any], refuse: Refuse) -> dict[str, Any]:
    """The words of `SUBJECT`."""
    model = table.get("model")
    if model is not None and not (isinstance(model, str) and model.strip()):
        raise refuse("model", "model cannot be read.", "a model's name, as on the command line", model)
    if "cut" in table and "edits" in table:
        raise refuse("edits", "Interventions are given twice.", "cut or edits", "cut edits")
    return {
        "model": model,
        "checkpoint": _checkpoint(table, "checkpoint", table.get("checkpoint"), refuse),
        "prompt": _prompt(table, refuse),
        "bos": _truth(table, "bos", refuse),
        "cut": _heads(table, "cut", refuse),
        "edits": _edits(table, refuse),
        "conventions": _conventions(table, refuse),
    }


def _selection(table: Mapping[str, Any], refuse: Refuse) -> dict[str, Any]:
    """The words of `SELECTION`."""
    return {
        "heads": _heads(table, "heads", refuse) or None,
        "edge": _edge(table, refuse),
        "edge_kind": _choice(table, "edge_kind", get_args(Kind), refuse),
        "destination": _where(table, "destination", refuse),
        "source": _where(table, "source", refuse),
        "locked": _truth(table, "locked", refuse),
        "token": _token(table, "token", table.get("token"), refuse),
        "target": _target(table, refuse),
    }


def _checkpoint(table: Mapping[str, Any], name: str, value: object, refuse: Refuse) -> Checkpoint | None:
    if value is None or value == FINAL:
        return None if value is None else FINAL
    if isinstance(value, int) and whole(value) and value >= 0:
        return value
    if isinstance(value, Mapping) and set(value) == {"index"} and whole(value["index"]) and value["index"] >= 0:
        return Index(value["index"])
    raise refuse(name, f"{name} cannot be read.", 'a training step, or "final"', table[name])


def _prompt(table: Mapping[str, Any], refuse: Refuse) -> Prompt | None:
    prompts = [name for name in _PROMPTS if name in table]
    if len(prompts) > 1 and prompts != ["text", "tokens"]:
        raise refuse(prompts[1], "There are two prompts.", "text or tokens, or random", " ".join(prompts))
    if not prompts:
        return None
    text = _text(table, "text", refuse)
    if prompts == ["text"]:
        return text
    if "tokens" in prompts:
        ids = table["tokens"]
        if not isinstance(ids, (list, tuple)) or not all(whole(v) and v >= 0 for v in ids):
            raise refuse("tokens", "tokens cannot be read.", "[0, 5, 9]", ids)
        return tuple(ids) if text is None else Encoded(text, tuple(ids))
    return _random(table["random"], refuse)


def _random(value: object, refuse: Refuse) -> Random:
    least = {"block": 1, "repeats": 1, "seed": 0}
    if isinstance(value, Mapping) and all(whole(v) and v >= least.get(k, v + 1) for k, v in value.items()):
        return Random(**value)
    raise refuse("random", "random cannot be read.", "{ block = 25, repeats = 2, seed = 0 }", value)


def whole(value: object) -> bool:
    """Whether a value is a whole number; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool)


def _number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def _text(table: Mapping[str, Any], name: str, refuse: Refuse) -> str | None:
    value = table.get(name)
    if value is not None and not isinstance(value, str):
        raise refuse(name, f"{name} cannot be read.", "a text", value)
    return value


def _truth(table: Mapping[str, Any], name: str, refuse: Refuse) -> bool | None:
    value = table.get(name)
    if value is not None and not isinstance(value, bool):
        raise refuse(name, f"{name} cannot be read.", "true or false", value)
    return value


def _strings(table: Mapping[str, Any], name: str, refuse: Refuse) -> tuple[str, ...] | None:
    if name not in table:
        return None
    value = [table[name]] if isinstance(table[name], str) else table[name]
    if not isinstance(value, (list, tuple)) or not all(isinstance(v, str) and v for v in value):
        raise refuse(name, f"{name} cannot be read.", "a list of texts", table[name])
    return tuple(value)


def _heads(table: Mapping[str, Any], name: str, refuse: Refuse) -> tuple[str, ...] | None:
    texts = _strings(table, name, refuse)
    for text in texts or ():
        try:
            _ = text.startswith(BEST) or Head.parse(text)
        except UsageError as error:
            raise refuse(name, error.what, f'{error.expected}, or "best prefix_matching"', text) from error
    return texts


def _edge(table: Mapping[str, Any], refuse: Refuse) -> tuple[str, str] | tuple[()] | None:
    heads = _heads(table, "edge", refuse)
    if not heads:
        return None if heads is None else ()
    if len(heads) != 2:
        raise refuse("edge", "edge cannot be read.", "two heads, or [] for none", table["edge"])
    return heads[0], heads[1]


def _choice(table: Mapping[str, Any], name: str, choices: tuple[str, ...], refuse: Refuse) -> Any:
    value = table.get(name)
    if value is not None and value not in choices:
        raise refuse(name, f"{name} cannot be read.", " ".join(choices), value)
    return value


def _where(block: Mapping[str, Any], name: str, refuse: Refuse) -> Where | None:
    value = block.get(name)
    if value is None or whole(value):
        return value
    if isinstance(value, (list, tuple)) and not value:
        return ()
    table: Any = {"text": value} if isinstance(value, str) else value
    if isinstance(table, Mapping) and set(table) <= {"text", "occurrence"} and isinstance(table.get("text"), str):
        occurrence = table.get("occurrence", -1)
        if table["text"] and whole(occurrence) and occurrence:
            return Occurrence(table["text"], occurrence)
    raise refuse(name, f"{name} cannot be read.", '12, " cat", { text = " cat", occurrence = 1 }, or [] for none', value)


def _token(table: Mapping[str, Any], name: str, value: Any, refuse: Refuse) -> Token | None:
    if value is None or isinstance(value, str) or (whole(value) and value >= 0):
        return value
    raise refuse(name, f"{name} cannot be read.", "the text of one token, or its id", table[name])


def _target(table: Mapping[str, Any], refuse: Refuse) -> tuple[Token, ...] | Direction | None:
    value = table.get("target")
    if value is None:
        return None
    if isinstance(value, Mapping):
        numbers = value.get("direction")
        if set(value) == {"direction"} and isinstance(numbers, (list, tuple)) and numbers and all(map(_number, numbers)):
            return Direction(tuple(map(float, numbers)))
        raise refuse("target", "target cannot be read.", "{ direction = [0.1, …] }", str(value)[:80])
    tokens = [value] if isinstance(value, (str, int)) else value
    if not isinstance(tokens, (list, tuple)) or len(tokens) > 2 or "" in tokens:
        raise refuse("target", "target cannot be read.", "at most two tokens", value)
    read = tuple(_token(table, "target", token, refuse) for token in tokens)
    return tuple(token for token in read if token is not None)


def _conventions(table: Mapping[str, Any], refuse: Refuse) -> Conventions | None:
    if "conventions" not in table:
        return None
    try:
        return from_json(Conventions, table["conventions"], "conventions")
    except UsageError as error:
        raise refuse("conventions", error.what, error.expected, error.got) from error


def _edits(table: Mapping[str, Any], refuse: Refuse) -> Edits | None:
    if "edits" not in table:
        return None
    if not isinstance(table["edits"], (list, tuple)):
        raise refuse("edits", "edits cannot be read.", "a list of tables", table["edits"])
    try:
        return tuple(map(_edit, table["edits"]))
    except UsageError as error:
        raise refuse("edits", error.what, error.expected, error.got) from error


def _edit(value: Any) -> tuple[Intervention, bool]:
    """An intervention and whether it is on. Raises `UsageError`."""
    if not isinstance(value, Mapping) or not {"op", "site", "layer"} <= set(value) <= set(_EDIT):
        raise UsageError("An intervention cannot be read.", expected=" ".join(_EDIT), got=str(value)[:80])
    enabled = value.get("on", True)
    if not isinstance(enabled, bool):
        raise UsageError("An intervention cannot be read.", expected="on = true or false", got=repr(enabled)[:80])
    plain = {n: value[n] for n in ("op", "value", "source", "align") if n in value} | {"site": _site(value, value["site"])}
    if "from" in value:
        if not isinstance(value["from"], Mapping) or not {"site", "layer"} <= set(value["from"]) <= set(_EDIT[1:6]):
            raise UsageError("A path's sender cannot be read.", expected=" ".join(_EDIT[1:6]), got=str(value["from"])[:80])
        plain["path_from"] = _site(value["from"], value["from"]["site"])
    return from_json(Intervention, plain, "edits"), enabled


def _site(value: Mapping[str, Any], name: object) -> dict[str, Any]:
    return {"name": name, **{n: value[n] for n in ("layer", "heads", "positions", "sources") if n in value}}


def _pin(table: Mapping[str, Any], refuse: Refuse, tolerant: bool) -> tuple[Other | Setup, ...] | Literal["before"] | None:
    value = table.get("pin")
    if value is None or value == "before":
        return value
    if value == "none":
        return ()
    values = value if isinstance(value, (list, tuple)) else [value]
    return tuple(_pinned(one, lambda key, *rest: refuse("pin", *rest), tolerant) for one in values)


def _pinned(value: Any, refuse: Refuse, tolerant: bool) -> Other | Setup:
    """A pin: words beside the step's own, or with `whole = true` a whole setup of its own."""
    if isinstance(value, Mapping) and value.get("whole") is True:
        try:
            return read_setup({n: v for n, v in value.items() if n != "whole"}, refuse, tolerant)
        except RecursionError as error:
            raise refuse("pin", "pin cannot be read.", "few pins inside pins", "too many") from error
    known = isinstance(value, Mapping) and value and (tolerant or set(value) <= set(_PIN))
    if not isinstance(value, Mapping) or not known:
        raise refuse("pin", "pin cannot be read.", f'"before", "none", or a table of {" ".join(_PIN)}', value)
    unknown = {key: word for key, word in value.items() if key not in _PIN}
    words = Setup(**_subject(value, refuse), **_selection(value, refuse), unknown=unknown)
    return Other(words, _text(value, "label", refuse) or "")


def _zoom(table: Mapping[str, Any], refuse: Refuse) -> Mapping[str, Box]:
    value = table.get("zoom", {})
    good = isinstance(value, Mapping) and all(
        isinstance(box, (list, tuple)) and len(box) in (2, 4) and all(map(_number, box)) for box in value.values()
    )
    if not good:
        raise refuse("zoom", "zoom cannot be read.", '{ "attention/pattern" = [left, bottom, right, top] }', value)
    return {name: tuple(map(float, box)) for name, box in value.items()}


def _play(table: Mapping[str, Any], refuse: Refuse) -> tuple[Checkpoint, Checkpoint] | None:
    value = table.get("play")
    if value is None:
        return None
    if not isinstance(value, (list, tuple)) or len(value) != 2 or None in value:
        raise refuse("play", "play cannot be read.", 'two training steps, such as [0, "final"]', value)
    first, last = _checkpoint(table, "play", value[0], refuse), _checkpoint(table, "play", value[1], refuse)
    assert first is not None and last is not None
    return first, last


def _view(table: Mapping[str, Any], refuse: Refuse) -> Mapping[str, Mapping[str, Any]]:
    value = table.get("view", {})
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise refuse("view", "view cannot be read.", "[view.PANEL] tables", value)
    return value


# -- writing ------------------------------------------------------------------------------------------------------------------


_EMPTY = ("show", "arrange", "alone", "zoom", "view")  # words that are not set where they are empty


def table_of(setup: Setup) -> dict[str, Any]:
    """The words of a setup as a table of plain values, in the order in which they are read; without those that are not set."""
    table: dict[str, Any] = {}
    for name in (f.name for f in fields(Setup)):
        value = getattr(setup, name)
        if value is None or (name in _EMPTY and not value):
            continue
        table |= _WRITERS[name](value) if name in _WRITERS else {name: to_json(value)}
    return table


def _prompt_table(prompt: Prompt) -> dict[str, Any]:
    if isinstance(prompt, Random):
        return {"random": to_json(prompt)}
    if isinstance(prompt, Encoded):
        return {"text": prompt.text, "tokens": list(prompt.ids)}
    return {"text": prompt} if isinstance(prompt, str) else {"tokens": list(prompt)}


def _edits_table(edits: Edits) -> dict[str, Any]:
    return {"edits": [_edit_table(edit) | ({} if on else {"on": False}) for edit, on in edits]}


def _edit_table(edit: Intervention) -> dict[str, Any]:
    lists = {n: list(getattr(edit, n)) for n in ("value", "source", "align") if getattr(edit, n)}
    sender = {} if edit.path_from is None else {"from": _site_table(edit.path_from)}
    return {"op": edit.op, **_site_table(edit.site), **lists, **sender}


def _site_table(site: Site) -> dict[str, Any]:
    lists = {n: list(getattr(site, n)) for n in ("heads", "positions", "sources") if getattr(site, n)}
    return {"site": site.name, "layer": site.layer, **lists}


def _conventions_table(conventions: Conventions) -> dict[str, Any]:
    default = Conventions()
    return {f.name: v for f in fields(Conventions) if (v := getattr(conventions, f.name)) != getattr(default, f.name)}


def _where_value(where: Where) -> Any:
    if not isinstance(where, Occurrence):
        return list(where) if isinstance(where, tuple) else where
    return where.text if where.occurrence == -1 else to_json(where)


def _pin_value(pin: Other | Setup) -> dict[str, Any]:
    if isinstance(pin, Setup):
        return {**table_of(pin), "whole": True}
    words = table_of(pin.words)
    return words | ({"label": pin.label} if pin.label or not words else {})


def _pin_table(pin: tuple[Other | Setup, ...] | Literal["before"]) -> dict[str, Any]:
    if pin == "before" or not pin:
        return {"pin": pin or "none"}
    values = [_pin_value(one) for one in pin]
    return {"pin": values[0] if len(values) == 1 else values}


_WRITERS: Mapping[str, Callable[[Any], dict[str, Any]]] = {
    "prompt": _prompt_table,
    "edits": _edits_table,
    "conventions": lambda value: {"conventions": _conventions_table(value)},
    "destination": lambda value: {"destination": _where_value(value)},
    "source": lambda value: {"source": _where_value(value)},
    "target": lambda value: {"target": {"direction": list(value.values)} if isinstance(value, Direction) else list(value)},
    "pin": _pin_table,
    "unknown": dict,
}
