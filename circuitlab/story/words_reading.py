"""From the words of a step as a table of plain values to a `Setup`; `words` lists the keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Literal, get_args

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import UsageError, quoted
from circuitlab.model.intervention import Intervention
from circuitlab.model.plain import from_json
from circuitlab.model.subject import Conventions, Head
from circuitlab.state.state import Compare, Kind
from circuitlab.story.film import PARAMETERS, sweep_of
from circuitlab.story.setup import (
    BEST,
    FINAL,
    SELECTION,
    SUBJECT,
    Checkpoint,
    Direction,
    Edits,
    Encoded,
    Index,
    Occurrence,
    Other,
    Play,
    Prompt,
    Random,
    Setup,
    Sweep,
    Token,
    Where,
)
from circuitlab.story.typed_words import Refuse, choice_of, is_number, is_whole, text_of, texts_of, truth_of
from circuitlab.story.zoom import read_zoom

_PROMPTS = ("text", "tokens", "random")
SUBJECT_KEYS = tuple(key for name in SUBJECT for key in (_PROMPTS if name == "prompt" else (name,)))
_PIN = (*SUBJECT_KEYS, *SELECTION, "label")
KEYS = tuple(dict.fromkeys((*SUBJECT_KEYS, *(f.name for f in fields(Setup) if f.name not in ("prompt", "unknown")))))
_EDIT = ("op", "site", "layer", "heads", "positions", "sources", "value", "source", "align", "from", "on")


def read_setup(table: JsonObject, refuse: Refuse, tolerant: bool = False) -> Setup:
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
        draft=text_of(table, "draft", refuse),
        pin=_pin(table, refuse, tolerant),
        compare=choice_of(table, "compare", get_args(Compare), refuse),
        show=texts_of(table, "show", refuse) or (),
        arrange=text_of(table, "arrange", refuse) or "",
        alone=truth_of(table, "alone", refuse) or False,
        stage=texts_of(table, "stage", refuse) or (),
        zoom=read_zoom(table, refuse),
        play=_play(table, refuse),
        view=_view(table, refuse),
        unknown=unknown,
    )


def read_other(table: JsonObject, refuse: Refuse) -> Other:
    """The subject of a table that may hold more: model, checkpoint, prompt, cut and so on."""
    return Other(Setup(**_subject(table, refuse)))


def _subject(table: Mapping[str, object], refuse: Refuse) -> JsonDict:
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
        "bos": truth_of(table, "bos", refuse),
        "front": text_of(table, "front", refuse),
        "special": truth_of(table, "special", refuse),
        "cut": _heads(table, "cut", refuse),
        "edits": _edits(table, refuse),
        "conventions": _conventions(table, refuse),
    }


def _selection(table: Mapping[str, object], refuse: Refuse) -> JsonDict:
    """The words of `SELECTION`."""
    return {
        "heads": _heads(table, "heads", refuse) or None,
        "edge": _edge(table, refuse),
        "edge_kind": choice_of(table, "edge_kind", get_args(Kind), refuse),
        "destination": _where(table, "destination", refuse),
        "source": _where(table, "source", refuse),
        "locked": truth_of(table, "locked", refuse),
        "token": _token(table, "token", table.get("token"), refuse),
        "target": _target(table, refuse),
    }


def _checkpoint(table: Mapping[str, object], name: str, value: object, refuse: Refuse) -> Checkpoint | None:
    if value is None or value == FINAL:
        return None if value is None else FINAL
    if isinstance(value, int) and is_whole(value) and value >= 0:
        return value
    if isinstance(value, Mapping) and set(value) == {"index"} and is_whole(value["index"]) and value["index"] >= 0:
        return Index(value["index"])
    raise refuse(name, f"{name} cannot be read.", 'a training step, or "final"', table[name])


def _prompt(table: Mapping[str, object], refuse: Refuse) -> Prompt | None:
    prompts = [name for name in _PROMPTS if name in table]
    if len(prompts) > 1 and prompts != ["text", "tokens"]:
        raise refuse(prompts[1], "There are two prompts.", "text or tokens, or random", " ".join(prompts))
    if not prompts:
        return None
    text = text_of(table, "text", refuse)
    if prompts == ["text"]:
        return text
    if "tokens" in prompts:
        ids = table["tokens"]
        if not isinstance(ids, (list, tuple)) or not all(is_whole(v) and v >= 0 for v in ids):
            raise refuse("tokens", "tokens cannot be read.", "[0, 5, 9]", ids)
        return tuple(ids) if text is None else Encoded(text, tuple(ids))
    return _random(table["random"], refuse)


def _random(value: object, refuse: Refuse) -> Random:
    least = {"block": 1, "repeats": 1, "seed": 0}
    if isinstance(value, Mapping) and all(is_whole(v) and v >= least.get(k, v + 1) for k, v in value.items()):
        return Random(**value)
    raise refuse("random", "random cannot be read.", "{ block = 25, repeats = 2, seed = 0 }", value)


def _heads(table: JsonObject, name: str, refuse: Refuse) -> tuple[str, ...] | None:
    texts = texts_of(table, name, refuse)
    for text in texts or ():
        try:
            _ = text.startswith(BEST) or Head.parse(text)
        except UsageError as error:
            raise refuse(name, error.what, f'{error.expected}, or "best prefix_matching"', text) from error
    return texts


def _edge(table: Mapping[str, object], refuse: Refuse) -> tuple[str, str] | tuple[()] | None:
    heads = _heads(table, "edge", refuse)
    if not heads:
        return None if heads is None else ()
    if len(heads) != 2:
        raise refuse("edge", "edge cannot be read.", "two heads, or [] for none", table["edge"])
    return heads[0], heads[1]


def _where(block: JsonObject, name: str, refuse: Refuse) -> Where | None:
    value = block.get(name)
    if value is None or is_whole(value):
        return value
    if isinstance(value, (list, tuple)) and not value:
        return ()
    table: Any = {"text": value} if isinstance(value, str) else value
    if isinstance(table, Mapping) and set(table) <= {"text", "occurrence"} and isinstance(table.get("text"), str):
        occurrence = table.get("occurrence", -1)
        if table["text"] and is_whole(occurrence) and occurrence:
            return Occurrence(table["text"], occurrence)
    raise refuse(name, f"{name} cannot be read.", '12, " cat", { text = " cat", occurrence = 1 }, or [] for none', value)


def _token(table: Mapping[str, object], name: str, value: Any, refuse: Refuse) -> Token | None:
    if value is None or isinstance(value, str) or (is_whole(value) and value >= 0):
        return value
    raise refuse(name, f"{name} cannot be read.", "the text of one token, or its id", table[name])


def _target(table: Mapping[str, object], refuse: Refuse) -> tuple[Token, ...] | Direction | None:
    value = table.get("target")
    if value is None:
        return None
    if isinstance(value, Mapping):
        numbers = value.get("direction")
        if set(value) == {"direction"} and isinstance(numbers, (list, tuple)) and numbers and all(map(is_number, numbers)):
            return Direction(tuple(map(float, numbers)))
        raise refuse("target", "target cannot be read.", "{ direction = [0.1, …] }", quoted(value))
    tokens = [value] if isinstance(value, (str, int)) else value
    if not isinstance(tokens, (list, tuple)) or len(tokens) > 2 or "" in tokens:
        raise refuse("target", "target cannot be read.", "at most two tokens", value)
    read = tuple(_token(table, "target", token, refuse) for token in tokens)
    return tuple(token for token in read if token is not None)


def _conventions(table: Mapping[str, object], refuse: Refuse) -> Conventions | None:
    if "conventions" not in table:
        return None
    try:
        return from_json(Conventions, table["conventions"], "conventions")
    except UsageError as error:
        raise refuse("conventions", error.what, error.expected, error.got) from error


def _edits(table: Mapping[str, object], refuse: Refuse) -> Edits | None:
    if "edits" not in table:
        return None
    if not isinstance(table["edits"], (list, tuple)):
        raise refuse("edits", "edits cannot be read.", "a list of tables", table["edits"])
    try:
        return tuple(map(_edit, table["edits"]))
    except UsageError as error:
        raise refuse("edits", error.what, error.expected, error.got) from error


def _edit(value: object) -> tuple[Intervention, bool]:
    """An intervention and whether it is on. Raises `UsageError`."""
    if not isinstance(value, Mapping) or not {"op", "site", "layer"} <= set(value) <= set(_EDIT):
        raise UsageError("An intervention cannot be read.", expected=" ".join(_EDIT), got=quoted(value))
    enabled = value.get("on", True)
    if not isinstance(enabled, bool):
        raise UsageError("An intervention cannot be read.", expected="on = true or false", got=quoted(enabled))
    plain = {n: value[n] for n in ("op", "value", "source", "align") if n in value} | {"site": _site(value, value["site"])}
    if "from" in value:
        if not isinstance(value["from"], Mapping) or not {"site", "layer"} <= set(value["from"]) <= set(_EDIT[1:6]):
            raise UsageError("A path's sender cannot be read.", expected=" ".join(_EDIT[1:6]), got=quoted(value["from"]))
        plain["path_from"] = _site(value["from"], value["from"]["site"])
    return from_json(Intervention, plain, "edits"), enabled


def _site(value: Mapping[str, object], name: object) -> JsonDict:
    return {"name": name, **{n: value[n] for n in ("layer", "heads", "positions", "sources") if n in value}}


def _pin(table: JsonObject, refuse: Refuse, tolerant: bool) -> tuple[Other | Setup, ...] | Literal["before"] | None:
    value = table.get("pin")
    if value is None or value == "before":
        return value
    if value == "none":
        return ()
    values = value if isinstance(value, (list, tuple)) else [value]
    return tuple(_pinned(one, lambda key, *rest: refuse("pin", *rest), tolerant) for one in values)


def _pinned(value: object, refuse: Refuse, tolerant: bool) -> Other | Setup:
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
    return Other(words, text_of(value, "label", refuse) or "")


def _play(table: JsonObject, refuse: Refuse) -> Play | None:
    value = table.get("play")
    if value is None:
        return None
    if isinstance(value, Mapping):
        return _sweep(value, refuse)
    if not isinstance(value, (list, tuple)) or len(value) != 2 or None in value:
        raise refuse("play", "play cannot be read.", 'two training steps, such as [0, "final"], or { offset = [1, 8] }', value)
    first, last = _checkpoint(table, "play", value[0], refuse), _checkpoint(table, "play", value[1], refuse)
    assert first is not None and last is not None
    return first, last


def _sweep(table: Mapping[str, object], refuse: Refuse) -> Sweep:
    (name, values), *others = table.items() if table else ((None, None),)
    if others or name not in PARAMETERS or not isinstance(values, (list, tuple)):
        raise refuse(
            "play", "play cannot be read.", f"{{ NAME = [first, last] }}, NAME one of {' '.join(PARAMETERS)}", dict(table)
        )
    try:
        return sweep_of(name, values)
    except UsageError as error:
        raise refuse("play", f"play cannot be read: {error.what}", error.expected, error.got) from error


def _view(table: JsonObject, refuse: Refuse) -> Mapping[str, JsonObject]:
    value = table.get("view", {})
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        raise refuse("view", "view cannot be read.", "[view.PANEL] tables", value)
    return value
