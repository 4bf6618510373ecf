"""Assumptions about what no file of a checkpoint states: listed by name, each with a reason, and open to correction.

A loader asks `Assumed` for each value that no file states. The person's own value (`--assume NAME=VALUE`, `Checkpoint.assume`)
takes precedence over the loader's; a value that is not among the choices is an error, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from circuitlab.errors import BadModel, UsageError, quoted

YOUR_CHOICE = "your choice"  # the reason of a value that the person gave


@dataclass(frozen=True)
class Assumption:
    """One assumed value. `choices`: the possible values, () for a number or a path; `why`: the reason;
    `free`: values besides the choices are accepted."""

    name: str
    value: str
    choices: tuple[str, ...] = ()
    why: str = ""
    free: bool = False

    def __str__(self) -> str:
        return f"{self.name} {self.value}" + (f" ({self.why})" if self.why else "")


class Assumed:
    """Collects the assumptions of one loading in order: `assumptions`."""

    def __init__(self, values: Mapping[str, str]) -> None:
        """`values`: the person's own, by name."""
        self._values = values
        self.assumptions: list[Assumption] = []

    def chosen(self, name: str) -> bool:
        """Whether the person gave a value."""
        return name in self._values

    def choice(self, name: str, default: str, choices: tuple[str, ...], why: str) -> str:
        """One of `choices`. Raises `BadModel` for another."""
        value = self._values.get(name, default)
        if value not in choices:
            raise _bad(name, " or ".join(choices), value)
        return self._record(name, value, choices, why)

    def text(self, name: str, default: str, choices: tuple[str, ...], why: str) -> str:
        """One of `choices`, or free text that the caller interprets."""
        return self._record(name, self._values.get(name, default), choices, why, free=True)

    def number(self, name: str, default: float, why: str) -> float:
        """A finite number. Raises `BadModel` for anything else."""
        text = self._values.get(name, f"{default:.10g}")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise _bad(name, "a finite number", text)
        self._record(name, text, (), why)
        return value

    def size(self, name: str, default: int | None, why: str) -> int:
        """A whole number of at least 1; `default` None: the person must give it. Raises `BadModel`."""
        if default is None and name not in self._values:
            raise BadModel(
                f"The tensors do not say what {name} is.",
                expected=why,
                got="shapes alone",
                remedy=f"State it: --assume {name}=NUMBER, or put a configuration beside the file.",
                asks={name: ()},
            )
        text = self._values.get(name, str(default))
        if not (text.isascii() and text.isdecimal() and int(text[:18]) > 0):
            raise _bad(name, "a whole number of at least 1", text)
        self._record(name, text, (), why)
        return int(text[:18])

    def _record(self, name: str, value: str, choices: tuple[str, ...], why: str, free: bool = False) -> str:
        self.assumptions.append(Assumption(name, value, choices, YOUR_CHOICE if name in self._values else why, free))
        return value


def _bad(name: str, expected: str, got: str) -> BadModel:
    return BadModel(f"The assumption {name} cannot be read.", expected=expected, got=quoted(got))


_TYPED = "Write the name of an assumption, = and its value; `circuitlab info MODEL` lists them."


def pairs(items: list[str] | tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """`NAME=VALUE` words as pairs in the order of their names. Raises `UsageError`, also for a name that is given twice."""
    values = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not (equals and name.strip()):
            expected, got = "NAME=VALUE, such as positions=shortformer", item or "nothing"
            raise UsageError("An assumption could not be read.", expected=expected, got=got, remedy=_TYPED)
        if name.strip() in values:
            expected = f"one value of {name.strip()}"
            raise UsageError("An assumption is given twice.", expected=expected, got=item, remedy="Drop one of them.")
        values[name.strip()] = value.strip()
    return tuple(sorted(values.items()))
