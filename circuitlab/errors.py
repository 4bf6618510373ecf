"""The errors a person can cause or meet, each of which says what was expected, what came and what to do.

Every error raised on purpose is a `CircuitLabError`. The command line maps `exit_code` to the process' exit status,
the window shows `str(error)` in a dialog; neither needs to know the subclasses. Exit codes: 1 our fault, 2 usage,
3 bad model, input or machine, 4 over the memory budget, 130 cancelled.
"""

from __future__ import annotations

from collections.abc import Mapping

from circuitlab.counting import number_of


class CircuitLabError(Exception):
    """Something that went wrong in a way that was foreseen.

    Parameters: `what` happened in one sentence; `expected` and `got` where there is something to compare; `remedy`,
    what the person can do about it.
    """

    exit_code = 1
    title = "Something went wrong"

    def __init__(self, what: str, *, expected: str = "", got: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.expected, self.got, self.remedy = what, expected, got, remedy

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  expected: {self.expected}"] if self.expected else []
        lines += [f"  got:      {self.got}"] if self.got else []
        lines += [f"  do:       {self.remedy}"] if self.remedy else []
        return "\n".join(lines)


class UsageError(CircuitLabError):
    """An option, a parameter name or a value that does not exist or does not parse."""

    exit_code = 2
    title = "That cannot be read"


class BadModel(CircuitLabError):
    """A checkpoint that is missing, damaged, of an unknown family, or contradicts its own configuration.

    `asks`: the assumptions that, once said, may settle it, each with the values it can have, () for any.
    """

    exit_code = 3
    title = "The model cannot be opened"

    def __init__(
        self,
        what: str,
        *,
        expected: str = "",
        got: str = "",
        remedy: str = "",
        asks: Mapping[str, tuple[str, ...]] | None = None,
    ) -> None:
        super().__init__(what, expected=expected, got=got, remedy=remedy)
        self.asks: Mapping[str, tuple[str, ...]] = dict(asks or {})


class UnknownFamily(BadModel):
    """A checkpoint whose parameter names nobody here knows.

    `tensors` are its own names in lines to be shown, layers taken together and with shapes, some of `n_tensors`; `command` is
    what imports it by a map, "" where it has no named tensors.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str,
        got: str,
        remedy: str,
        tensors: tuple[str, ...] = (),
        n_tensors: int = 0,
        command: str = "",
    ) -> None:
        super().__init__(what, expected=expected, got=got, remedy=remedy)
        self.tensors, self.n_tensors, self.command = tensors, n_tensors, command

    def __str__(self) -> str:
        if not self.tensors:
            return super().__str__()
        lines = [super().__str__(), f"  its {number_of(self.n_tensors, 'tensor')}:", *(f"    {line}" for line in self.tensors)]
        return "\n".join([*lines, f"  import:   {self.command}"])


class BadInput(CircuitLabError):
    """Text, tokens or parameters that this model cannot take."""

    exit_code = 3
    title = "The model cannot take this input"


class BadMachine(CircuitLabError):
    """A library, a display or a disk that is not there."""

    exit_code = 3
    title = "Something is missing on this machine"


class Refused(BadInput):
    """An analysis that does not apply to this model; the reason is one line, a sentence without its full name in code."""

    title = "This analysis does not apply"

    def __init__(self, reason: str) -> None:
        name = "_" in reason.partition(" ")[0]  # of an analysis, as it is typed
        super().__init__(reason if name else reason[:1].upper() + reason[1:])


class OverBudget(CircuitLabError):
    """A computation whose stated memory is more than the budget."""

    exit_code = 4
    title = "That does not fit in the memory budget"


class BadFigure(CircuitLabError):
    """A picture whose parts disagree: labels for other steps than there are cells. A fault of the panel, not of its user."""

    title = "That cannot be drawn"


class Cancelled(CircuitLabError):
    """Raised by `Ctx.tick` when the person no longer wants the answer."""

    exit_code = 130
    title = "Cancelled"

    def __init__(self, what: str = "Cancelled.") -> None:
        super().__init__(what)


LONGEST = 300  # characters of an error that stand in a line; a log and a report have all of it


def bounded(text: str, most: int = LONGEST) -> str:
    """The text, or as much of it as may stand in a line of the window."""
    text = text.strip()
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def reason(error: object) -> str:
    """Why something was not done, in one line: of a foreseen error what happened, of any other its kind and its first line."""
    if isinstance(error, CircuitLabError):
        return bounded(error.what)
    if isinstance(error, MemoryError):
        return "The machine’s memory ran out."
    if isinstance(error, BaseException) and not isinstance(error, Exception):  # KeyboardInterrupt, SystemExit
        return "It was interrupted."
    first_line = str(error).strip().partition("\n")[0]
    return bounded(f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__)
