"""The errors a person can cause or meet; each says what was expected, what was found and what to do.

Every error raised on purpose is a `CircuitLabError`. The command line maps `exit_code` to the process' exit status,
the window shows `str(error)` in a dialog; neither needs to know the subclasses. Exit codes: 1 internal error, 2 usage,
3 bad model, input or machine, 4 over the memory budget, 130 cancelled.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from circuitlab.counting import number_of


class CircuitLabError(Exception):
    """An anticipated error.

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

    `asks`: the assumptions that may resolve it once the person gives a value, each with its possible values, () for any.
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
    """A checkpoint that no family recognises.

    `tensors`: its tensor names with shapes as lines of text, layers grouped, possibly not all of `n_tensors`; `command`: the
    command that imports it by a map, "" where it has no named tensors.
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
    """A missing library, display, device or disk."""

    exit_code = 3
    title = "Something is missing on this machine"


class Refused(BadInput):
    """An analysis that does not apply to this model. The reason is one sentence."""

    title = "This analysis does not apply"

    def __init__(self, reason: str) -> None:
        name = "_" in reason.partition(" ")[0]  # of an analysis, as it is typed
        super().__init__(reason if name else reason[:1].upper() + reason[1:])


class OverBudget(CircuitLabError):
    """A computation whose estimated memory exceeds the budget."""

    exit_code = 4
    title = "That does not fit in the memory budget"


class BadFigure(CircuitLabError):
    """A figure whose parts disagree, such as 5 labels for 12 cells. A fault of the panel, not of its user."""

    title = "That cannot be drawn"


class Cancelled(CircuitLabError):
    """Raised by `Ctx.tick` once the answer is no longer wanted."""

    exit_code = 130
    title = "Cancelled"

    def __init__(self, what: str = "Cancelled.") -> None:
        super().__init__(what)


@contextmanager
def advising(remedy: str) -> Iterator[None]:
    """Gives errors raised inside that do not say what to do this remedy."""
    try:
        yield
    except CircuitLabError as error:
        error.remedy = error.remedy or remedy
        raise


LONGEST = 300  # characters of an error shown in one line; a log and a report have all of it


def bounded(text: str, most: int = LONGEST) -> str:
    """The text, cut to what fits in a line of the window."""
    text = text.strip()
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def printable(value: object, most: int = 120) -> str:
    """A value of a file as text for an error: what no screen shows, as escapes; cut short."""
    text = str(value)
    return (text if text.isprintable() else ascii(text)[1:-1])[:most]


def reason(error: object) -> str:
    """Why something was not done, in one line: `what` of a `CircuitLabError`, the type and first line of any other error."""
    if isinstance(error, CircuitLabError):
        return bounded(error.what)
    if isinstance(error, MemoryError):
        return "The machine’s memory ran out."
    if isinstance(error, BaseException) and not isinstance(error, Exception):  # KeyboardInterrupt, SystemExit
        return "It was interrupted."
    first_line = str(error).strip().partition("\n")[0]
    return bounded(f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__)
