"""The errors a person can cause or meet; each says what was expected, what was found and what to do.

Every error raised on purpose is a `CircuitLabError`. The command line maps `exit_code` to the process' exit status,
the window shows `str(error)` in a dialog; neither needs to know the subclasses. Exit codes: 1 internal error, 2 usage,
3 bad model, input or machine, 4 over the memory budget, 130 cancelled.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from itertools import islice
from pathlib import PurePath

from circuitlab.counting import number_of
from circuitlab.terminal import on_one_line


class CircuitLabError(Exception):
    """An anticipated error.

    Parameters: `what` happened in one sentence; `expected` and `got` where there is something to compare; `remedy`,
    what the person can do about it. `asks_first`: nothing failed; work stopped before it began, to ask the person.
    """

    exit_code = 1
    asks_first = False
    title = "Something went wrong"

    def __init__(self, what: str, *, expected: str = "", got: str = "", remedy: str = "") -> None:
        super().__init__(what)
        self.what, self.expected, self.got, self.remedy = what, expected, got, remedy

    def __str__(self) -> str:
        lines = [self.what]
        lines += [f"  expected: {self.expected}"] if self.expected else []
        lines += [f"  got:      {self.got if self.got.strip() else repr(self.got)}"] if self.got else []
        lines += [f"  do:       {self.remedy}"] if self.remedy else []
        return "\n".join(map(on_one_line, lines))  # a name with a line break cannot add a line

    def __reduce__(self) -> tuple[object, ...]:
        """Copied and pickled by its attributes: the arguments of a subclass are not those that `Exception` keeps."""
        return _bare, (type(self), self.args), vars(self)


def _bare(kind: type[CircuitLabError], args: tuple[object, ...]) -> CircuitLabError:
    """An error without its attributes, which a copy or a pickle then sets."""
    return kind.__new__(kind, *args)


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


class NotFetched(BadModel):
    """A model of the catalogue that is not on this machine. `name`: what `circuitlab get` calls it."""

    def __init__(self, what: str, *, name: str, expected: str, got: str, remedy: str) -> None:
        super().__init__(what, expected=expected, got=got, remedy=remedy)
        self.name = name


class UnknownFamily(BadModel):
    """A checkpoint that no family recognises.

    `known`: what is opened, a long list, which stands last. `tensors`: its tensor names with shapes as lines of text, layers
    grouped, possibly not all of `n_tensors`; `command`: the command that imports it by a map, "" where it has no named tensors.
    """

    def __init__(
        self,
        what: str,
        *,
        expected: str,
        got: str,
        remedy: str,
        known: str = "",
        tensors: tuple[str, ...] = (),
        n_tensors: int = 0,
        command: str = "",
    ) -> None:
        super().__init__(what, expected=expected, got=got, remedy=remedy)
        self.known, self.tensors, self.n_tensors, self.command = known, tensors, n_tensors, command

    def __str__(self) -> str:
        lines = [super().__str__()]
        if self.tensors:
            tensors = (f"    {on_one_line(line)}" for line in self.tensors)
            lines += [f"  import:   {self.command}", f"  its {number_of(self.n_tensors, 'tensor')}:", *tensors]
        return "\n".join([*lines, *([f"  opened:   {on_one_line(self.known)}"] if self.known else [])])


MOST_MODELS = 40  # of a list that an error shows


class SeveralModels(BadModel):
    """A name that several models answer to.

    `models`: how each of them is named, and `lines`: the same with what tells them apart, in the same order.
    """

    def __init__(self, what: str, *, expected: str, remedy: str, models: tuple[str, ...], lines: tuple[str, ...]) -> None:
        super().__init__(what, expected=expected, remedy=remedy)
        self.models, self.lines = models, lines

    def __str__(self) -> str:
        shown = [f"    {on_one_line(line)}" for line in self.lines[:MOST_MODELS]]
        left = len(self.lines) - len(shown)
        return "\n".join([super().__str__(), *shown, *([f"    … and {number_of(left, 'more model')}"] if left else [])])


class BadInput(CircuitLabError):
    """Text, tokens or parameters that this model cannot take."""

    exit_code = 3
    title = "The model cannot take this input"


class BadMachine(CircuitLabError):
    """A missing library, display, device or disk."""

    exit_code = 3
    title = "Something is missing on this machine"


class TooLong(BadInput):
    """A prompt of more tokens than the model's context has room for."""

    title = "The prompt is too long"

    def __init__(self, what: str, most: int, got: str) -> None:
        """`most`: tokens of the context; `got`: how many the prompt has, as far as it was read."""
        remedy = "Shorten the text, or open a model with a longer context."
        super().__init__(what, expected=f"at most {number_of(most, 'token')}", got=got, remedy=remedy)


class Refused(BadInput):
    """An analysis that does not apply to this model. The reason is one sentence."""

    title = "This analysis does not apply"

    def __init__(self, reason: str) -> None:
        name = "_" in reason.partition(" ")[0]  # of an analysis, as it is typed
        remedy = "Open a model to which it applies, or choose other parameters or another analysis."
        super().__init__(reason if name else reason[:1].upper() + reason[1:], remedy=remedy)


RAISE_BUDGET = "raise the memory budget: in Settings, or with --budget"


class OverBudget(CircuitLabError):
    """A computation whose estimated memory exceeds the budget."""

    exit_code = 4
    title = "That does not fit in the memory budget"


class BadFigure(CircuitLabError):
    """A figure whose parts disagree, such as 5 labels for 12 cells. A fault of the panel, not of its user."""

    title = "That cannot be drawn"


class PluginError(CircuitLabError):
    """A plug-in that cannot be imported, fails or does not come to an end. `plugin`: its name and version."""

    exit_code = 3
    title = "A plug-in failed"

    def __init__(self, what: str, *, got: str = "", remedy: str = "Do without it.", plugin: str = "") -> None:
        super().__init__(what, got=got, remedy=remedy)
        self.plugin = plugin


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


@contextmanager
def titled(title: str) -> Iterator[None]:
    """Gives errors raised inside whose class is a general one this title of their dialog."""
    try:
        yield
    except (BadInput, UsageError) as error:
        if type(error) in (BadInput, UsageError):
            error.title = title
        raise


NOT_FINITE = "Training may have diverged, or the file is damaged: open another checkpoint, or fetch the file again."
LONGEST = 300  # characters of an error shown in one line; a log and a report have all of it


def bounded(text: str, most: int = LONGEST) -> str:
    """The text, cut to what fits in a line of the window."""
    text = text.strip()
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def printable(value: object, most: int = 120) -> str:
    """A value of a file as text for an error: what no screen shows, as escapes; cut short."""
    text = str(value)
    return (text if text.isprintable() else ascii(text)[1:-1])[:most]


def quoted(value: object, most: int = 80) -> str:
    """A value that a person, a program or a file gave, for an error: a text in quotation marks, objects by what they are.

    Never Python's own words for an object, and never longer than `most` characters, however large the value is.
    """
    return bounded(_in_words(value, most), most)


def stated(got: object, most: int = 120) -> str:
    """What came in place of what was expected: words as they are, a blank text or any other value `quoted`."""
    return printable(got, most) if isinstance(got, str) and got.strip() else quoted(got, most)


def _in_words(value: object, most: int) -> str:
    if most < 8:  # inside something that is inside something …
        return "…"
    if value is None or isinstance(value, bool):
        return "none" if value is None else str(value).lower()
    if isinstance(value, (str, PurePath)):
        return repr(str(value)[:most])
    if isinstance(value, int):
        return str(value) if abs(value) < 10**most else "a whole number of more digits than fit here"
    if isinstance(value, (float, complex)):
        return str(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(k, most // 2)}: {quoted(v, most // 2)}" for k, v in islice(value.items(), most)) + "}"
    if isinstance(value, (list, tuple, set, frozenset)) and type(value).__str__ is object.__str__:
        return "[" + ", ".join(quoted(one, most // 2) for one in islice(value, most)) + "]"
    if isinstance(value, (bytes, bytearray)):
        return number_of(len(value), "byte")
    return _object_in_words(value, most)


def _object_in_words(value: object, most: int) -> str:
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if isinstance(shape := getattr(value, "shape", None), tuple):  # of numpy or torch, which are not imported here
        return f"an array of {' × '.join(map(str, shape))}" if shape else f"{value}"
    if type(value).__str__ is not object.__str__:  # a head, a target, a number
        return printable(value, most)
    if is_dataclass(value):
        return ", ".join(f"{one.name} {quoted(getattr(value, one.name), most // 2)}" for one in fields(value))
    return "a function" if callable(value) else f"an object of the class {type(value).__name__}"


def cause(error: BaseException, most: int = 200) -> str:
    """What the system or a library says of a failure, in one line and without Python's own words around it."""
    if isinstance(error, UnicodeEncodeError):
        lone = ord(error.object[error.start])  # arguments bring their bytes as such
        what = f"the byte 0x{lone - 0xDC00:02x}" if 0xDC80 <= lone <= 0xDCFF else "half of a character"
        return f"{what} at place {error.start}, which is not UTF-8"
    if isinstance(error, UnicodeDecodeError):
        return f"a byte at place {error.start} that is not UTF-8"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    first_line = re.sub(r"^\[Errno -?\d+\] ", "", str(error).strip().partition("\n")[0])
    return printable(first_line or type(error).__name__, most)


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
