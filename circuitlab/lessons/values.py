"""Numbers that stand in a lesson's text. They are declared, never written: the engine computes them when the step is shown.

    [values.loss]
    analysis = "token_loss"
    set = { … }                     # its parameters, as `circuitlab compute --set`; "$head" "$heads" "$destination" "$source"
                                    #   "$token" "$target" "$model" stand for what the step has chosen
    read = "mean"                   # see below
    format = ".2f"                  # Python's format of a number; "head", "token": a head's or a token's name
    on = "pin"                      # on the reference instead of the step's own subject
    model = "…"                     # or on another subject: model, checkpoint, text, tokens, random, cut, as in `pin`
    minus = "other"                 # take the value of that name away from it

`read` is an attribute of the result, or an array with indices: "mean", "loss[-1]", "loss[26:51]", "mean[prefix_matching, head]",
"prefix_matching[L1H3]", "values[0, destination, source]". An index is a number or a slice, a head (two indices: layer, head), one
of head, destination, source, token, or one of the result's own `names`. What is left is one number, or taken together by
mean(…), sum(…), max(…), min(…); exp(…) and abs(…) are of one number. best(…) is where the largest stands: a head where that is
over layers and heads, else an index. "best prefix_matching" is a head: as an index the two of it, in `set` its name, and alone
(then without an analysis) its name in the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from circuitlab.analysis.base import find_analysis
from circuitlab.engine.codec import as_text, params_of
from circuitlab.errors import BadInput, UsageError
from circuitlab.lessons.step import Other, Refuse, read_other
from circuitlab.model.subject import Head
from circuitlab.session.state import State

READ = re.compile(r"^\s*(?:(mean|sum|max|min|best|exp|abs)\()?\s*([A-Za-z_]\w*)\s*((?:\.[A-Za-z_]\w*|\[[^\[\]]+\])*)\s*(\))?\s*$")
_TOGETHER: dict[str, Callable[[np.ndarray], Any]] = {
    "mean": np.nanmean,
    "sum": np.nansum,
    "max": np.nanmax,
    "min": np.nanmin,
}
_SLICE = re.compile(r"^(-?\d*):(-?\d*)$")
BEST_HEAD = re.compile(r"\bbest (\w+)")
_KEYS = ("analysis", "set", "read", "format", "on", "minus", "model", "checkpoint", "text", "tokens", "random", "cut")
_NAME = re.compile(r"^[a-z][a-z0-9_]*$")
WORDS = (
    "model",
    "step",
    "head",
    "heads",
    "destination",
    "source",
    "token",
    "n_tokens",
    "pin",
)  # undeclared; a declared value comes first


@dataclass(frozen=True)
class Value:
    """A declared number: see the module. `other` None: on the step's own subject, or on its pin."""

    name: str
    analysis: str
    params: Mapping[str, Any]
    read: str
    format: str
    pinned: bool = False
    other: Other | None = None
    minus: str = ""

    def request_params(self, state: State, best: Callable[[str], Head]) -> Any:
        """The analysis' parameters, `$…` and "best …" replaced. Raises `UsageError`."""
        given = {name: _chosen(live(value, best), state) for name, value in self.params.items()}
        return params_of(find_analysis(self.analysis).params, given)


def live(value: Any, best: Callable[[str], Head]) -> Any:
    """A text with each "best …" replaced by the head that `best(score)` names; a list of texts becomes one, as it is typed."""
    if isinstance(value, list):
        made = [live(v, best) for v in value]
        return ",".join(made) if made and all(isinstance(v, str) for v in made) else made
    return BEST_HEAD.sub(lambda match: str(best(match[1])), value) if isinstance(value, str) else value


def read_value(name: str, table: Any, refuse: Refuse) -> Value:
    """A `[values.NAME]` table. Raises what `refuse` gives."""
    if not _NAME.match(name):
        raise refuse(name, "A value cannot be called that.", "small letters, digits, _", name)
    if not isinstance(table, dict) or not set(table) <= set(_KEYS):
        got = table if not isinstance(table, dict) else " ".join(sorted(set(table) - set(_KEYS)))
        raise refuse(name, f"The value {name} cannot be read.", " ".join(_KEYS), got)
    texts = {k: table.get(k, d) for k, d in (("analysis", ""), ("read", ""), ("format", ".2f"), ("on", ""), ("minus", ""))}
    if isinstance(texts["read"], str) and (alone := BEST_HEAD.fullmatch(texts["read"].strip())):
        texts |= {"read": f"best({alone[1]})", "analysis": texts["analysis"] or "head_scores", "format": "head"}
    if not all(isinstance(v, str) for v in texts.values()) or not texts["analysis"] or not texts["read"]:
        raise refuse(name, f"The value {name} lacks something.", "analysis and read, as texts", table)
    if not READ.match(texts["read"]):
        raise refuse(name, "read cannot be read.", 'such as "mean", "loss[-1]", "mean(loss[26:51])"', texts["read"])
    if texts["on"] not in ("", "pin"):
        raise refuse(name, "on cannot be read.", '"pin"', texts["on"])
    if not isinstance(table.get("set", {}), dict):
        raise refuse(name, "set cannot be read.", "{ parameter = value }", table["set"])
    other = read_other(table, lambda key, *rest: refuse(name, *rest))
    check_format(texts["format"], lambda *rest: refuse(name, *rest))
    return Value(
        name,
        texts["analysis"],
        table.get("set", {}),
        texts["read"],
        texts["format"],
        texts["on"] == "pin",
        None if other == Other() else other,
        texts["minus"],
    )


def check_format(text: str, refuse: Callable[[str, str, object], BadInput]) -> None:
    """Whether a number can be written so."""
    wrong = lambda: refuse("format cannot be read.", 'such as ".2f", ".0%", "+.3f", "head", "token"', text)
    if re.search(r"\d{3}", text):  # a number as wide as a page, or as memory
        raise wrong()
    try:
        _ = text in ("head", "token") or format(1 if text.endswith("d") else 1.0, text)
    except ValueError as error:
        raise wrong() from error


def _chosen(value: Any, state: State) -> Any:
    """`"$head"` and its like, as text."""
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    chosen = state.selection
    known = {
        "head": chosen.head,
        "heads": chosen.heads,
        "destination": _last(chosen.destination),
        "source": _last(chosen.source),
        "token": chosen.token,
        "target": chosen.target,
        "model": state.model.source,
    }
    if value[1:] not in known:
        raise UsageError("There is no such choice.", expected=" ".join(f"${n}" for n in known), got=value)
    return as_text(known[value[1:]])


def _last(position: int | None) -> int:
    return -1 if position is None else position


def read_out(value: Value, result: Any, state: State) -> float | Head:
    """What `read` says of a result. Raises `BadInput` where it is not there, not one number, or not computed."""
    match = READ.match(value.read)
    assert match, "checked where it was read"
    together, name, rest = match[1], match[2], match[3]
    found = _attribute(result, name, value)
    for part in re.findall(r"\.[A-Za-z_]\w*|\[[^\[\]]+\]", rest):
        found = _attribute(found, part[1:], value) if part[0] == "." else _indexed(found, part[1:-1], result, state, value)
    if together == "best":
        return _best(np.asarray(found, float), value)
    array = np.asarray(found)
    if together in _TOGETHER and array.size and np.isfinite(array.astype(float)).any():
        array = np.asarray(_TOGETHER[together](array.astype(float)))
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise BadInput(
            f"The number {value.read} is not one number.", expected="one number", got=f"shape {array.shape}, {array.dtype}"
        )
    number = array.reshape(()).item()
    number = _exp(number) if together == "exp" else abs(number) if together == "abs" else number
    if not math.isfinite(number):
        raise BadInput(f"The number {value.read} has no value here.", expected="a number", got=str(number))
    return number


def _exp(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def _attribute(thing: Any, name: str, value: Value) -> Any:
    found = getattr(thing, name, None)
    if found is None and name in getattr(thing, "names", ()) and callable(getattr(thing, "of", None)):
        found = thing.of(name)  # head_scores: one score by its name
    if found is None or callable(found):
        raise BadInput(f"The analysis {value.analysis} has no {name}.", expected="an attribute of its result", got=value.read)
    return found


def _indexed(found: Any, inside: str, result: Any, state: State, value: Value) -> Any:
    index: list[Any] = []
    for word in (w.strip() for w in inside.split(",")):
        index += _index(word, result, state, value)
    try:
        return np.asarray(found)[tuple(index)]
    except IndexError as error:
        raise BadInput(f"The number {value.read} reads past the end.", expected=f"shape {np.shape(found)}", got=inside) from error


def _index(word: str, result: Any, state: State, value: Value) -> list[Any]:
    chosen = state.selection
    if match := _SLICE.match(word):
        return [slice(*(int(part) if part not in ("", "-") else None for part in match.groups()))]
    if re.fullmatch(r"-?\d{1,9}", word):
        return [int(word)]
    if word in getattr(result, "names", ()):
        return [tuple(result.names).index(word)]
    known = {"head": list(chosen.head), "destination": [_last(chosen.destination)], "source": [_last(chosen.source)]}
    known |= {"token": [chosen.token]} if chosen.token is not None else {}
    if word in known:
        return known[word]
    try:
        return list(Head.parse(word))
    except UsageError as error:
        raise BadInput(f"The number {value.read} cannot be read.", expected="numbers, slices, heads, names", got=word) from error


def _best(array: np.ndarray, value: Value) -> float | Head:
    if not array.ndim or not np.isfinite(array).any():
        raise BadInput(f"The number {value.read} has no value here.", expected="numbers in a row", got=f"shape {array.shape}")
    at = np.unravel_index(int(np.nanargmax(array)), array.shape)
    return Head(int(at[0]), int(at[1])) if len(at) == 2 else float(at[-1])


def written(number: float | Head, form: str, token_text: Callable[[int], str]) -> str:
    """A number in the text's words; a minus sign that is one."""
    if isinstance(number, Head):
        return str(number)
    if form == "token":
        return f"‘{token_text(int(number))}’"  # a full stop or a comma would be lost among the text's own
    if form == "head":
        raise BadInput("That is not a head.", expected="best(…) over layers and heads", got=str(number))
    text = format(int(number) if form.endswith("d") else number, form)
    return "−" + text[1:] if text.startswith("-") else text
