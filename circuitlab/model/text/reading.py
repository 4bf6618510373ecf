"""How a text becomes ids, beyond the rules of its tokenizer; and the switch of the library that decides on special tokens."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from tokenizers import Tokenizer as _Tokenizer

Front = bool | str  # what stands in front of a text: True BOS, False nothing, else the special token with this spelling


class Reading(NamedTuple):
    """`front`: what stands in front of a text. `special`: whether spellings of special tokens in it become their ids."""

    front: Front = False
    special: bool = False


class SpecialSwitch:
    """The one flag of a `tokenizers` object that says whether it reads spellings of special tokens, for many threads.

    Texts of one way of reading are encoded side by side; one of the other way waits until they are done, and whoever comes after
    it waits behind it. The library's own lock would be waited for with the interpreter's, and the window would stand still.
    """

    def __init__(self, inner: _Tokenizer) -> None:
        self._inner, self._special, self._running = inner, False, 0
        self._waiting: deque[object] = deque()  # in the order in which they came
        self._changed = threading.Condition()
        inner.encode_special_tokens = True

    @contextmanager
    def reading(self, special: bool | None) -> Iterator[None]:
        """Spellings are read as special tokens (True) or as letters within; None: as they are now, without a change within."""
        ticket = object()
        may = lambda: self._waiting[0] is ticket and (not self._running or special in (None, self._special))
        with self._changed:
            self._waiting.append(ticket)
            try:
                self._changed.wait_for(may)
                if special not in (None, self._special):
                    self._inner.encode_special_tokens = not special  # the library's word for reading them as letters
                    self._special = bool(special)
                self._running += 1
            finally:
                self._waiting.remove(ticket)
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()
