"""Old session files: each version's table of plain values is taken to the next one's, so that every file opens for ever.

A step of `STEPS` is never changed once a version has been released; `tests/data/sessions` holds a file of each version.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from circuitlab import __version__
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadInput, printable, quoted
from circuitlab.model.origin import File, origin_of

VERSION = 2  # of the files written now
Table = JsonDict


def migrated(table: Table) -> Table:
    """The table as the present version would have written it.

    Raises `BadInput` for what is no session, and for one of a newer version.
    """
    version = _version(table)
    if version > VERSION:
        by = printable(table.get("by") or "a newer CircuitLab", 40)
        raise BadInput(
            "The session was saved by a newer version of CircuitLab.",
            expected=f"version {VERSION} or older, as {__version__} writes it",
            got=f"version {version}, written by {by}",
            remedy="Open it with that version, or install a newer CircuitLab.",
        )
    for step in STEPS[version:]:
        table = step(table)
    return table


def _version(table: Mapping[str, object]) -> int:
    if table.get("circuitlab") == "session":
        version = table.get("version")
        if isinstance(version, int) and not isinstance(version, bool) and version >= 1:
            return version
    elif table.get("circuitlab") == 1 and isinstance(table.get("state"), dict):
        return 0
    got = f"circuitlab: {quoted(table.get('circuitlab'), 40)}, version: {quoted(table.get('version'), 40)}"
    raise BadInput(
        "This is not a session file.",
        expected='"circuitlab": "session" and a version',
        got=got,
        remedy="Open a .circuitlab file that CircuitLab has saved.",
    )


# -- from the JSON of a State, as “Copy session as JSON” put it on the clipboard -----------------------------------------------


def _from_state(table: Table) -> Table:
    """Version 0, the fields of a State, as words."""
    state = table["state"]
    try:
        return _Old(state).table
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise BadInput(
            "The copied session cannot be read.",
            expected="the fields of a State",
            got=printable(error),
            remedy="Copy the view again, in the version of CircuitLab that it is to be opened with.",
        ) from error


class _Old:
    """The words of a State's JSON; its models are named in a table."""

    def __init__(self, state: JsonObject) -> None:
        self.models: Table = {}
        now = self._words(state["model"], state, state.get("edits", []), state.get("text", ""))
        now |= {"draft": state["draft"]} if state.get("draft") else {}
        # the state without its interventions was once kept as a pin; now it follows from the state itself
        pins = [pin for pin in state.get("pins", []) if pin["label"] != "uncut" or pin["subject"].get("edits")]
        if pins := [self._pin(pin) for pin in pins]:
            now["pin"] = pins
        if pins or state.get("compare", "now") != "now":  # pins alone would mean the difference
            now["compare"] = state.get("compare", "now")
        now |= {"view": dict(state["views"])} if state.get("views") else {}
        notes = [{"text": str(note["text"]), **({"panel": note["panel"]} if note.get("panel") else {})} for note in _notes(state)]
        self.table: Table = {"circuitlab": "session", "version": 1, "models": self.models, "now": now, "notes": notes}

    def _model(self, model: JsonObject) -> Table:
        source, assume = str(model["source"]), {str(name): str(value) for name, value in model.get("assume", [])}
        origin = origin_of(source)
        entry: Table = {"path": origin.where} if isinstance(origin, File) else {"source": source}
        entry |= {"assume": assume} if assume else {}
        stem = origin.where.replace("\\", "/").rstrip("/").split("/")[-1] or source
        names = (stem, *(f"{stem} {i}" for i in range(2, 1000)))
        name = next(name for name in names if self.models.setdefault(name, entry) == entry)
        index = model.get("checkpoint")
        return {"model": name} | ({} if index is None else {"checkpoint": {"index": index}})

    def _words(self, model: JsonObject, state: JsonObject, edits: list[Any], text: str) -> Table:
        words = self._model(model) | {"tokens": list(state.get("tokens", []))} | ({"text": text} if text else {})
        words |= {"bos": state["bos"]} if "bos" in state else {}
        words |= {"edits": [_edit(*edit) for edit in edits]} if edits else {}
        words |= {"conventions": dict(state["conventions"])} if state.get("conventions") else {}
        return words | _selection(state.get("selection", {}))

    def _pin(self, pin: JsonObject) -> Table:
        subject = pin["subject"]
        words = self._words(subject["model"], {**subject, "selection": pin.get("selection", {})}, [], str(pin.get("text", "")))
        words["edits"] = [_edit(edit, True) for edit in subject.get("edits", [])]
        return {"conventions": {}} | words | {"label": str(pin["label"])}


def _notes(state: JsonObject) -> list[JsonObject]:
    return list(state.get("notes", []))


def _selection(selection: JsonObject) -> Table:
    words: Table = {"heads": list(selection.get("heads", ["L0H0"]))}
    if selection.get("edge") is not None:
        words |= {"edge": list(selection["edge"]), "edge_kind": selection.get("edge_kind", "K")}
    for name in ("destination", "source"):
        words[name] = [] if selection.get(name) is None else selection[name]
    words["locked"] = selection.get("locked", False)
    words["token"] = "" if selection.get("token") is None else selection["token"]
    target = selection.get("target", {})
    direction, tokens = target.get("direction", []), target.get("tokens", [])
    return words | {"target": {"direction": list(direction)} if direction else list(tokens)}


def _edit(edit: JsonObject, enabled: bool) -> Table:
    site, sender = edit["site"], edit.get("path_from")
    place = lambda site: {"site": site["name"], **{n: site[n] for n in ("layer", "heads", "positions", "sources") if n in site}}
    lists = {n: list(edit[n]) for n in ("value", "source", "align") if edit.get(n)}
    path = {} if sender is None else {"from": place(sender)}
    return {"op": edit["op"], **place(site), **lists, **path} | ({} if enabled else {"on": False})


# -- version 1, in which spellings of special tokens were letters ---------------------------------------------------------------

_MAY_SPELL = re.compile(r"[<\[{|｜▁]")  # one of these is in the spelling of nearly any special token


def _spelled(table: Table) -> Table:
    """Version 1 with the word that spellings are letters, wherever a text may hold one: it shows what it showed."""
    table = {**table, "version": 2} | ({"now": _as_letters(table["now"])} if "now" in table else {})
    story = table.get("story")
    if isinstance(story, dict) and isinstance(steps := story.get("steps"), list):
        table["story"] = {**story, "steps": [_inside(step, ("set", "values")) for step in steps]}
    return table


def _inside(table: Any, keys: tuple[str, ...]) -> Any:
    """A table with the words of some of its keys, each words, a list of words or words by name, as `_as_letters` has them."""
    if not isinstance(table, dict):
        return table
    each = lambda value: [_as_letters(one) for one in value] if isinstance(value, list) else _as_letters(value)
    by_name = lambda value: {name: _as_letters(one) for name, one in value.items()} if isinstance(value, dict) else value
    return {**table, **{key: (by_name if key == "values" else each)(table[key]) for key in keys if key in table}}


def _as_letters(words: Any) -> Any:
    """The words of a step, of a pin, or of what a value is asked about.

    A spelling of letters alone ("EOS") is not seen here. Every text that was saved has its ids, and these say how it was read
    (`story.named_in_model.special_of`).
    """
    if not isinstance(words, dict):
        return words
    texts = [words[key] for key in ("text", "draft") if isinstance(words.get(key), str)]
    letters = "special" not in words and any(map(_MAY_SPELL.search, texts))
    return _inside(words, ("pin",)) | ({"special": False} if letters else {})


STEPS: tuple[Callable[[Table], Table], ...] = (_from_state, _spelled)
