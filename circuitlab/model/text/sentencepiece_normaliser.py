"""How SentencePiece normalises a text before dividing it: a table of characters, spaces taken out, one in front, ▁ for a space.

The table (`precompiled_charsmap`) is a double array (Yata et al. 2007) of keys in UTF-8, each with the place of its replacement
in a list of texts that end in NUL: at each place of a text the longest key is replaced. `tokenizers` reads it too, but goes by
grapheme clusters and takes the shortest key, so that "ﬁ" with an accent loses the accent; here the text is that of SentencePiece.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from circuitlab.counting import number_of

SPACE = "▁"
_LARGEST_TABLE = 2**22  # bytes; that of the usual rules has 240,000
_LONGEST_KEY, _LONGEST_REPLACEMENT = 32, 256  # characters, of which the usual rules have 4 and 18
_MOST_STEPS = 2**16  # from a place in the table by a character, as far as they are remembered
_MOST_NODES = 2**17  # of a table, on the way to the characters at which its keys begin; the largest known has 10,000
_FAR = "\U00010000"
_BLANKS = re.compile(" {2,}+")


@dataclass(frozen=True)
class Rules:
    """What a model says of normalising.

    `table`: its bytes; `symbols`: pieces of the user's own, which stay as they are; `in_front`: a space is put in front of the
    text, or behind it with `suffix`; `collapses`: spaces at the ends are taken out, and all but one of several; `escapes`: a
    space is written as ▁.
    """

    table: bytes = b""
    symbols: tuple[str, ...] = ()
    in_front: bool = True
    suffix: bool = False
    collapses: bool = True
    escapes: bool = True

    @property
    def plain(self) -> bool:
        """Whether all that is done is to write spaces as ▁, one perhaps in front."""
        return self.escapes and not (self.table or self.suffix or self.collapses or (self.in_front and self.symbols))


class LongestKeys:
    """Looks for keys in a text: from the left, at each place the longest.

    Of the keys in their order, the last that does not stand behind the text from a place on is the longest that begins there, or
    has that one among the keys that it begins with: each is known with the longest of these, and with one further back, by which
    a chain of n is gone in log n steps. So a place costs no more where a hundred thousand keys begin alike, or one in another.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self.keys = frozenset(keys)
        self._sorted = sorted(self.keys)
        self._longest = max(map(len, self.keys), default=0)
        self._within, self._back = _chains(self._sorted)
        firsts = {key[0] for key in self.keys}
        self._firsts, self._start = frozenset(firsts), _any_of(firsts)

    def at(self, text: str, start: int) -> int:
        """The length of the key at a place, 0 without one."""
        if text[start] not in self._firsts:
            return 0
        rest = text[start : start + self._longest]
        n = bisect_right(self._sorted, rest) - 1
        if n < 0:
            return 0
        if rest.startswith(key := self._sorted[n]):
            return len(key)
        common = _common(key, rest)
        while n >= 0 and len(self._sorted[n]) > common:
            far = self._back[n]
            n = far if far >= 0 and len(self._sorted[far]) > common else self._within[n]
        return len(self._sorted[n]) if n >= 0 else 0

    def found(self, text: str) -> Iterator[tuple[int, int]]:
        """(start, end) of each key in a text, none over another."""
        at = 0
        while self._start is not None and (start := self._start.search(text, at)) is not None:
            n = self.at(text, start.start())
            at = start.start() + (n or 1)
            if n:
                yield start.start(), at


class Normaliser:
    """Normalises texts by rules. Raises `ValueError` for a table that is damaged or that no model has."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self._symbols, self._table = LongestKeys(rules.symbols), _Table(rules.table) if rules.table else None
        beginnings, self._letters, after = self._table.beginnings() if self._table is not None else (set(), set(), set())
        self._start = _any_of({*beginnings, *after, *(symbol[0] for symbol in self._symbols.keys)})

    def __call__(self, text: str) -> str:
        """A text as SentencePiece normalises it."""
        rules, out, at = self.rules, [], 0
        after_space = blank = rules.collapses
        for start, end, new in self._replaced(text):
            for part, replaced in ((text[at:start], False), (new, True)):
                blank = blank and (part == " " if replaced and end > start else not part.strip(" "))
                if after_space:
                    part = part.lstrip(" ")
                if rules.collapses and part:
                    part = part if replaced else _BLANKS.sub(" ", part)
                    after_space = part.endswith(" ")
                out.append(part)
            at = end
        if not text or blank:
            return ""
        whole, mark = "".join(out), SPACE if rules.escapes else " "
        if rules.escapes:
            whole = whole.replace(" ", SPACE)
        if rules.in_front and not rules.suffix:
            whole = mark + whole
        if rules.collapses:
            whole = whole.rstrip(mark)
        return whole + mark if rules.in_front and rules.suffix else whole

    def _replaced(self, text: str) -> Iterator[tuple[int, int, str]]:
        """(start, end, replacement) of what is replaced or kept as a symbol, and the end of the text."""
        at = 0
        while self._start is not None and (result := self._start.search(text, at)) is not None:
            start, n, new = result.start(), 0, ""
            if self._table is not None and start > at and text[start - 1] in self._letters:
                n, new = self._table.at(text, start - 1)
                start -= n > 0
            if not n and (n := self._symbols.at(text, start)):
                new = text[start : start + n]
            if not n and self._table is not None:
                n, new = self._table.at(text, start)
            if n:
                yield start, start + n, new
            at = start + (n or 1)
        yield len(text), len(text), ""


def _chains(keys: Sequence[str]) -> tuple[list[int], list[int]]:
    """For each of some keys in their order the longest other one that it begins with, and one of those further back, -1 for none.

    The latter as Myers (1983) places them in a list that is walked from its end: twice as far wherever two of a size meet.
    """
    within, back, depth = list[int](), list[int](), list[int]()
    for n, key in enumerate(keys):
        near = n - 1
        while near >= 0 and not key.startswith(keys[near]):
            near = within[near]
        far = back[near] if near >= 0 else -1
        further = back[far] if far >= 0 else -1
        meet = near >= 0 and far >= 0 and depth[near] - depth[far] == depth[far] - (depth[further] if further >= 0 else 0)
        within.append(near)
        back.append(further if meet else near)
        depth.append(depth[near] + 1 if near >= 0 else 1)
    return within, back


def _common(one: str, other: str) -> int:
    """How many characters two texts that differ begin with alike."""
    alike, differ = 0, min(len(one), len(other)) + 1
    while differ - alike > 1:
        middle = (alike + differ) // 2
        alike, differ = (middle, differ) if one[:middle] == other[:middle] else (alike, middle)
    return alike


def _any_of(characters: Collection[str]) -> re.Pattern[str] | None:
    """Matches one of some characters, None where there is none. Beyond U+FFFF, where `re` tries one by one, all if any."""
    near = "".join(re.escape(c) for c in sorted(characters) if c < _FAR)
    far = f"{_FAR}-\U0010ffff" * (len(characters) > 0 and max(characters) >= _FAR)
    return re.compile(f"[{near}{far}]") if characters else None


class _Table:
    """The keys and replacements of a `precompiled_charsmap`. Before a place that it names is read, its size is looked at."""

    def __init__(self, data: bytes) -> None:
        if len(data) > _LARGEST_TABLE:
            raise ValueError(f"a table of characters of {number_of(len(data), 'byte')}")
        size = struct.unpack_from("<I", data)[0] if len(data) >= 4 else 0
        if size < 4 or size % 4 or size > len(data) - 4:
            raise ValueError(f"a table of characters whose array has {number_of(size, 'byte')} of {len(data):,}")
        self._units: list[int] = np.frombuffer(data, dtype="<u4", count=size // 4, offset=4).tolist()
        self._texts = data[4 + size :]
        if max(map(len, self._texts.decode("utf-8").split("\0"))) > _LONGEST_REPLACEMENT:
            raise ValueError(f"a replacement of more than {number_of(_LONGEST_REPLACEMENT, 'character')}")
        self._steps: dict[tuple[int, str], tuple[int, str | None]] = {}
        self._visited = 0

    def at(self, text: str, start: int) -> tuple[int, str]:
        """The length of the longest key at a place, 0 without one, and its replacement."""
        node, result = 0, (0, "")
        for n, character in enumerate(text[start : start + _LONGEST_KEY], 1):
            node, new = self._step(node, character)
            if node < 0:
                break
            if new is not None:
                result = n, new
        return result

    def beginnings(self) -> tuple[set[str], set[str], set[str]]:
        """Characters at which a key may begin; letters of ASCII, at which one may begin in front of the third."""
        first = dict(self._characters(0))
        letters = {c for c in first if c.isascii() and self._step(0, c)[1] is None}
        return set(first) - letters, letters, {c for letter in letters for c, _ in self._characters(first[letter])}

    def _step(self, node: int, character: str) -> tuple[int, str | None]:
        """(the node, -1 without one, the replacement of what ends there) behind a character."""
        step = self._steps.get((node, character))
        if step is None:
            there = node
            for byte in character.encode():
                there = self._child(there, byte)
            step = there, self._replacement(there)
            if len(self._steps) >= _MOST_STEPS:
                self._steps.clear()
            self._steps[node, character] = step
        return step

    def _base(self, node: int) -> int:
        unit = self._units[node]
        return node ^ ((unit >> 10) << ((unit & 0x200) >> 6))

    def _child(self, node: int, byte: int) -> int:
        if node < 0:
            return -1
        child = self._base(node) ^ byte
        return child if child < len(self._units) and self._units[child] & 0x800000FF == byte else -1

    def _replacement(self, node: int) -> str | None:
        """What a unit's child 0 names, if a key ends at the unit."""
        if node <= 0 or not self._units[node] & 0x100:
            return None
        value = self._base(node)
        place = self._units[value] & 0x7FFFFFFF if value < len(self._units) else len(self._texts)
        end = self._texts.find(b"\0", place)
        return self._texts[place : end if end >= 0 else len(self._texts)].decode("utf-8", "replace")

    def _characters(self, node: int) -> Iterator[tuple[str, int]]:
        """(character, node) of all that follow a node."""
        waiting = [(b"", node)]
        while waiting:
            key, at = waiting.pop()
            for byte in _following(key):
                if (child := self._child(at, byte)) > 0:
                    self._visited += 1  # a node has one parent, so that each is met once from the root and once from a letter
                    if self._visited > min(2 * len(self._units), _MOST_NODES):
                        raise ValueError("a table of characters that leads back to itself, or with more than any model has")
                    one = key + bytes((byte,))
                    try:
                        yield one.decode("utf-8"), child
                    except UnicodeDecodeError:
                        waiting += [(one, child)] * (len(one) < 4)


def _following(key: bytes) -> range:
    """The bytes that may continue a character in UTF-8."""
    return range(0x80, 0xC0) if key else range(1, 0xF5)
