"""A State to JSON text and back. Views of panels that this version does not have are preserved unread."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from circuitlab.engine.codec import fields, from_json, to_json
from circuitlab.errors import BadInput, UsageError
from circuitlab.session.state import UNCUT, Selection, State

VERSION = 1


def state_to_text(state: State) -> str:
    """The state as JSON text."""
    return json.dumps({"circuitlab": VERSION, "state": to_json(state)}, ensure_ascii=False, indent=1)


def state_from_text(text: str, views: Mapping[str, type[Any]]) -> State:
    """The state that a JSON text holds; `views` are the view types by panel name. Raises `BadInput`."""
    try:
        data = json.loads(text)
        if not isinstance(data, dict) or data.get("circuitlab") != VERSION:
            raise UsageError("That is not a CircuitLab state.", expected=f"version {VERSION}", got=str(data)[:60])
        return _state(data["state"], views)
    except (ValueError, KeyError, RecursionError) as error:
        raise BadInput("The session cannot be read.", expected="a CircuitLab state as JSON", got=str(error)) from error
    except UsageError as error:
        raise BadInput(error.what, expected=error.expected, got=error.got) from error


def _state(data: Any, views: Mapping[str, type[Any]]) -> State:
    if not isinstance(data, dict):
        raise UsageError("The state is not an object.", expected="an object", got=repr(data)[:60])
    field_types = fields(State)
    if unknown := sorted(set(data) - set(field_types)):
        raise UsageError("The state has fields that are not known.", expected=" ".join(field_types), got=" ".join(unknown))
    plain = {n: from_json(field_types[n][0], v, n) for n, v in data.items() if n != "views"}
    view_data = data.get("views", {})
    if not isinstance(view_data, dict):
        raise UsageError("The state's views are not an object.", expected="an object", got=repr(view_data)[:60])
    parsed_views = {n: from_json(views[n], v, f"views.{n}") if n in views else v for n, v in view_data.items()}
    if "model" not in plain:
        raise UsageError("The state lacks its model.", expected="model", got="none")
    state = State(**plain, views=parsed_views)
    # older files hold the state without interventions as a pin; now it follows from the state itself
    state = replace(state, pins=tuple(pin for pin in state.pins if pin.label != UNCUT or pin.subject.edits))
    for selection in (state.selection, *(pin.selection for pin in state.pins)):
        _check(selection)
    return state


def _check(selection: Selection) -> None:
    """Check what the types cannot: panels rely on a leading head and on positions from 0."""
    places = [p for p in (selection.destination, selection.source, *(n for h in selection.heads for n in h)) if p is not None]
    if not selection.heads or min(places) < 0:
        raise UsageError("The selection cannot be read.", expected="at least one head, nothing below 0", got=str(selection)[:120])
