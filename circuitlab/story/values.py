"""The numbers in a step's text. They are declared, never written out: the engine computes them when the step is shown.

    [values.loss]
    analysis = "token_loss"
    set = { … }                     # its parameters, as `circuitlab compute --set`; "$head" "$heads" "$destination" "$source"
                                    #   "$token" "$target" "$model" stand for the step's selection
    read = "mean"                   # see below
    format = ".2f"                  # Python's format of a number; "head", "token": a head's or a token's name
    on = "pin"                      # on the reference instead of the step's own subject
    model = "…"                     # or on another subject: model, checkpoint, text, cut … as in `pin`
    minus = "other"                 # subtract the value of that name

`read` is an attribute of the result, or an array with indices: "mean", "loss[-1]", "loss[26:51]", "mean[prefix_matching, head]",
"prefix_matching[L1H3]", "values[0, destination, source]". An index is a number or a slice, a head (two indices: layer, head), one
of head, destination, source, token, a point of a training ("loss[checkpoint]", "loss[begin-1000]": `story/training_points`), or
one of the result's own `names`. The result is one number, or reduced to one by mean(…), sum(…), max(…), min(…); exp(…) and abs(…)
apply to one number. best(…) is the argmax: a head for an array over layers and heads, else an index. "best prefix_matching" is a
head: as an index its layer and head, in `set` its name, and alone (then without an analysis) its name in the text; "best final
prefix_matching" is the one of the final weights, at whatever checkpoint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from circuitlab.analysis.base import find_analysis
from circuitlab.counting import number as in_words
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.engine.codec import as_text, params_of
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.plain import fields, to_json
from circuitlab.model.subject import Head
from circuitlab.state.state import State
from circuitlab.story.setup import FINAL, Other
from circuitlab.story.training_points import point_of
from circuitlab.story.words import SUBJECT_KEYS, Refuse, read_other, table_of

LONGEST_READ = 500  # characters
READ = re.compile(  # nothing is tried twice
    r"\s*+(?:(mean|sum|max|min|best|exp|abs)\()?+\s*+([A-Za-z_]\w*+)\s*+((?:\.[A-Za-z_]\w*+|\[[^\[\]]++\])*+)\s*+(\))?+\s*+"
)
_REDUCTIONS: dict[str, Callable[[np.ndarray], object]] = {
    "mean": np.nanmean,
    "sum": np.nansum,
    "max": np.nanmax,
    "min": np.nanmin,
}
_SLICE = re.compile(r"^(-?\d*):(-?\d*)$")
BEST_HEAD = re.compile(r"\bbest ((?:final )?\w+)")
_KEYS = ("analysis", "set", "read", "format", "on", "minus", *SUBJECT_KEYS)
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
    """A declared number, see the module. `other` None: on the step's own subject, or on its pin.

    `unknown`: words of a session file that this version does not know.
    """

    name: str
    analysis: str
    params: JsonObject
    read: str
    format: str
    pinned: bool = False
    other: Other | None = None
    minus: str = ""
    unknown: JsonObject = field(default_factory=JsonDict)

    def request_params(self, state: State, best: Callable[[str], Head]) -> object:
        """The analysis' parameters, `$…` and "best …" replaced. Raises `UsageError`."""
        params = {name: _substituted(live(value, best), state) for name, value in self.params.items()}
        return params_of(find_analysis(self.analysis).params, params)


def live(value: Any, best: Callable[[str], Head]) -> Any:
    """A text with each "best …" replaced by the head `best(score)`; a list of texts becomes one, joined by commas."""
    if isinstance(value, list):
        items = [live(v, best) for v in value]
        return ",".join(items) if items and all(isinstance(v, str) for v in items) else items
    return BEST_HEAD.sub(lambda match: str(best(match[1])), value) if isinstance(value, str) else value


def live_controls(kind: type[object], controls: Mapping[str, object], best: Callable[[str], Head]) -> JsonDict:
    """A panel's controls of type `kind`, with each "best …" replaced where a control names heads; free text stays as it is."""
    declared = fields(kind)
    names_heads = lambda name: name in declared and _holds_heads(declared[name][0])
    return {name: live(value, best) if names_heads(name) else value for name, value in controls.items()}


def _holds_heads(kind: object) -> bool:
    return kind is Head or any(map(_holds_heads, get_args(kind)))


def read_value(name: str, table: object, refuse: Refuse, tolerant: bool = False) -> Value:
    """The value of a `[values.NAME]` table. Raises the error that `refuse` returns.

    `tolerant`: words that are not known are kept in `unknown`, otherwise they are refused.
    """
    if not _NAME.match(name):
        raise refuse(name, "A value cannot be called that.", "small letters, digits, _", name)
    if not isinstance(table, dict) or not (tolerant or set(table) <= set(_KEYS)):
        got = table if not isinstance(table, dict) else " ".join(sorted(set(table) - set(_KEYS)))
        raise refuse(name, f"The value {name} cannot be read.", " ".join(_KEYS), got)
    texts = {k: table.get(k, d) for k, d in (("analysis", ""), ("read", ""), ("format", ".2f"), ("on", ""), ("minus", ""))}
    fixed: JsonDict = {}
    if isinstance(texts["read"], str) and (alone := BEST_HEAD.fullmatch(texts["read"].strip())):
        final, score = alone[1].startswith(f"{FINAL} "), alone[1].removeprefix(f"{FINAL} ")
        texts |= {"read": f"best({score})", "analysis": texts["analysis"] or "head_scores", "format": "head"}
        fixed = {"checkpoint": FINAL} if final else {}
    if not all(isinstance(v, str) for v in texts.values()) or not texts["analysis"] or not texts["read"]:
        raise refuse(name, f"The value {name} lacks something.", "analysis and read, as texts", table)
    if len(texts["read"]) > LONGEST_READ:
        raise refuse(name, "read is too long.", f"at most {LONGEST_READ} characters", texts["read"])
    if not READ.fullmatch(texts["read"]):
        raise refuse(name, "read cannot be read.", 'such as "mean", "loss[-1]", "mean(loss[26:51])"', texts["read"])
    if texts["on"] not in ("", "pin"):
        raise refuse(name, "on cannot be read.", '"pin"', texts["on"])
    if not isinstance(table.get("set", {}), dict):
        raise refuse(name, "set cannot be read.", "{ parameter = value }", table["set"])
    other = read_other({**table, **fixed}, lambda key, *rest: refuse(name, *rest))
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
        {key: word for key, word in table.items() if key not in _KEYS},
    )


def value_table(value: Value) -> JsonDict:
    """The `[values.NAME]` table that is read as this value."""
    table: JsonDict = {"analysis": value.analysis}
    table |= {"set": to_json(value.params)} if value.params else {}
    table |= {"read": value.read, "format": value.format}
    table |= {"on": "pin"} if value.pinned else {}
    table |= table_of(value.other.words) if value.other is not None else {}
    return table | ({"minus": value.minus} if value.minus else {}) | dict(value.unknown)


def check_format(text: str, refuse: Callable[[str, str, object], BadInput]) -> None:
    """Check a number's format. Raises the error that `refuse` returns."""
    wrong = lambda: refuse("format cannot be read.", 'such as ".2f", ".0%", "+.3f", "head", "token"', text)
    if re.search(r"\d{3}", text):  # a width that could fill a page, or memory
        raise wrong()
    try:
        _ = text in ("head", "token") or format(1 if text.endswith("d") else 1.0, text)
    except ValueError as error:
        raise wrong() from error


def _substituted(value: object, state: State) -> object:
    """The selection that `"$head"`, `"$token"` … stand for, as text; other values as they are."""
    if not (isinstance(value, str) and value.startswith("$")):
        return value
    selection = state.selection
    choices = {
        "head": selection.head,
        "heads": selection.heads,
        "destination": _last(selection.destination),
        "source": _last(selection.source),
        "token": selection.token,
        "target": selection.target,
        "model": state.model.source,
    }
    if value[1:] not in choices:
        raise UsageError(
            "There is no such choice.", expected=" ".join(f"${n}" for n in choices), got=value, remedy="Write one of these."
        )
    return as_text(choices[value[1:]])


def _last(position: int | None) -> int:
    return -1 if position is None else position


def read_out(value: Value, result: object, state: State) -> float | Head:
    """The number that `read` takes from a result. Raises `BadInput` if it is missing, not one number, or not computed."""
    match = READ.fullmatch(value.read)
    assert match, "checked where it was read"
    reduction, name, rest = match[1], match[2], match[3]
    target = _attribute(result, name, value)
    for part in re.findall(r"\.[A-Za-z_]\w*|\[[^\[\]]+\]", rest):
        target = _attribute(target, part[1:], value) if part[0] == "." else _indexed(target, part[1:-1], result, state, value)
    if reduction == "best":
        return _argmax(np.asarray(target, float), value)
    array = np.asarray(target)
    if reduction in _REDUCTIONS and array.size and array.dtype.kind in "fiub":
        computed = array.astype(float)
        array = np.asarray(_REDUCTIONS[reduction](computed) if np.isfinite(computed).any() else math.nan)
    if array.size != 1 or array.dtype.kind not in "fiub":
        raise BadInput(
            f"The number {value.read} is not one number.",
            expected="one number",
            got=f"shape {array.shape}, {array.dtype}",
            remedy="Correct what the number reads; `circuitlab compute` shows what the analysis answers.",
        )
    number = array.reshape(()).item()
    number = _exp(number) if reduction == "exp" else abs(number) if reduction == "abs" else number
    if not math.isfinite(number):
        raise BadInput(
            f"The number {value.read} has no value here.",
            expected="a number",
            got=str(number),
            remedy="Correct what the number reads; `circuitlab compute` shows what the analysis answers.",
        )
    return number


def _exp(number: float) -> float:
    try:
        return math.exp(number)
    except OverflowError:
        return math.inf


def _attribute(result: Any, name: str, value: Value) -> object:
    attribute = getattr(result, name, None)
    if attribute is None and name in getattr(result, "names", ()) and callable(getattr(result, "of", None)):
        attribute = result.of(name)  # head_scores: one score by its name
    if attribute is None or callable(attribute):
        raise BadInput(
            f"The analysis {value.analysis} has no {name}.",
            expected="an attribute of its result",
            got=value.read,
            remedy="Correct what the number reads; `circuitlab compute` shows what the analysis answers.",
        )
    return attribute


def _indexed(array: Any, inside: str, result: object, state: State, value: Value) -> object:
    index: list[Any] = []
    for word in (w.strip() for w in inside.split(",")):
        index += _index(word, result, state, value)
    try:
        return np.asarray(array)[tuple(index)]
    except IndexError as error:
        raise BadInput(
            f"The number {value.read} reads past the end.",
            expected=f"shape {np.shape(array)}",
            got=inside,
            remedy="Correct what the number reads; `circuitlab compute` shows what the analysis answers.",
        ) from error


def _index(word: str, result: Any, state: State, value: Value) -> list[Any]:
    selection = state.selection
    if match := _SLICE.match(word):
        return [slice(*(int(part) if part not in ("", "-") else None for part in match.groups()))]
    if re.fullmatch(r"-?\d{1,9}", word):
        return [int(word)]
    if word in getattr(result, "names", ()):
        return [tuple(result.names).index(word)]
    choices = {"head": list(selection.head), "destination": [_last(selection.destination)], "source": [_last(selection.source)]}
    choices |= {"token": [selection.token]} if selection.token is not None else {}
    if word in choices:
        return choices[word]
    if (point := point_of(word, result, state.model.checkpoint)) is not None:
        return [point]
    try:
        return list(Head.parse(word))
    except UsageError as error:
        raise BadInput(
            f"The number {value.read} cannot be read.",
            expected="numbers, slices, heads, names",
            got=word,
            remedy="Correct what the number reads; `circuitlab compute` shows what the analysis answers.",
        ) from error


def _argmax(array: np.ndarray, value: Value) -> float | Head:
    if not array.ndim or not np.isfinite(array).any():
        raise BadInput(
            f"The number {value.read} has no value here.",
            expected="numbers in a row",
            got=f"shape {array.shape}",
            remedy="Correct what the number reads; `circuitlab compute` shows what the analysis answers.",
        )
    at = np.unravel_index(int(np.nanargmax(array)), array.shape)
    return Head(int(at[0]), int(at[1])) if len(at) == 2 else float(at[-1])


def difference(name: str, number: float | Head, other: float | Head) -> float:
    """The number of this name minus the one that its `minus` names. Raises `BadInput` for heads."""
    if isinstance(number, Head) or isinstance(other, Head):
        raise BadInput(
            "Heads cannot be subtracted.",
            expected="two numbers",
            got=f"{number} and {other}",
            remedy=f"Correct minus of the number {name}.",
        )
    return number - other


def not_computed(name: str) -> str:
    """What stands in a text in place of a number, so that nobody reads the sentence without it."""
    return f"[{name}: not computed]"


def why_not_computed(name: str, why: str) -> str:
    """What is said beside such a text."""
    return f"The number {name} is not computed: {why}"


def formatted(number: float | Head, form: str, token_text: Callable[[int], str]) -> str:
    """A number as text, with a true minus sign."""
    if isinstance(number, Head):
        return str(number)
    if form == "token":
        return f"‘{token_text(int(number))}’"  # a full stop or a comma would be lost among the text's own
    if form == "head":
        raise BadInput(
            "That is not a head.",
            expected="best(…) over layers and heads",
            got=str(number),
            remedy="Choose another format, or read best(…).",
        )
    return in_words(int(number) if form.endswith("d") else number, form)
