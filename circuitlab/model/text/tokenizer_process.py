"""A tokenizer that is not known to be harmless, run in a process that can be stopped (`tokenizer_child`).

Measured on two cores: 0.1 to 0.2 s to start and load a small vocabulary, then 0.1 ms per text beyond the tokenizer's own time.
"""

from __future__ import annotations

import json
import subprocess
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO

from circuitlab.child_process import environment, python, started
from circuitlab.counting import number_of
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import BadInput, BadModel
from circuitlab.model.text import tokenizer_child
from circuitlab.model.text.tokenizer_child import read_frame, write_frame

LOADING = tokenizer_child.LOADING  # a vocabulary of 250 000 tokens loads in 2 s
SECONDS, A_CHARACTER = 2.0, 20e-6  # s per text and per character: a hundred times what byte-level BPE takes
MOST_IDS = 64  # per character
_CHILD = Path(__file__).with_name("tokenizer_child.py")
_REMEDY = "Change or shorten the text, or remove the tokenizer's file and use token ids."


class TokenizerProcess:
    """Encodes and decodes within limits of time and memory. Thread-safe; one request at a time. Ends with its owner."""

    quick = -1  # characters that take a few milliseconds: of no text is it known

    def __init__(self, data: bytes) -> None:
        """`data`: a `tokenizer.json`. Raises `BadModel` if it cannot be loaded within `LOADING` seconds."""
        self.data = data
        self._lock = threading.Lock()
        self._running: list[
            subprocess.Popen[bytes]
        ] = []  # at most one; a list, so that the finaliser holds no reference to this object
        weakref.finalize(self, end, self._running)
        with self._lock:
            self._start()

    def encode(self, text: str, special: bool = False, added: bool = False) -> list[int]:
        """Ids of a text. `special`: spellings of special tokens are read as these; `added`: with those that the file adds.

        Raises `BadInput` if this takes too long, gives too many, or fails.
        """
        most = MOST_IDS * (len(text) + 16)
        reply = self._ask({"text": text, "special": special, "added": added, "most": most}, SECONDS + A_CHARACTER * len(text))
        if "many" in reply:
            got = f"{reply['many']} for {number_of(len(text), 'character')}"
            raise BadInput(
                "The tokenizer gives too many tokens for this text.", expected=f"at most {most}", got=got, remedy=_REMEDY
            )
        return reply["ids"]

    def decode(self, ids: list[int], special: bool = False) -> str:
        """Text of ids, with special tokens spelled (`special`) or left out. Raises `BadInput` as `encode` does."""
        limit = SECONDS + 10 * A_CHARACTER * len(ids)
        return self._ask({"ids": ids, "special": special, "most": 4096 * (len(ids) + 16)}, limit)["text"]

    def _start(self) -> subprocess.Popen[bytes]:
        """A new child that has loaded the tokenizer. Raises `BadModel`."""
        end(self._running)
        child = started(
            python(str(_CHILD)),
            stdin=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # where the library prints its panics
            env=environment(finds_us=True, TOKENIZERS_PARALLELISM="false"),
            apart=True,  # Ctrl+C goes to the parent alone
        )
        self._running.append(child)
        reply, late = exchange(child, self.data, LOADING)
        if reply is None or "error" in reply:
            end(self._running)
            got = f"nothing within {LOADING:.0f} s" if late else "no answer" if reply is None else reply["error"]
            remedy = "Fetch or write the file again, or remove it and use token ids."
            raise BadModel("The tokenizer cannot be loaded.", expected="a tokenizers file", got=got, remedy=remedy)
        return child

    def _ask(self, request: dict[str, object], limit: float) -> JsonDict:
        with self._lock:
            try:
                alive = [c for c in self._running if c.poll() is None]
                child = alive[0] if alive else self._start()
                reply, late = exchange(child, json.dumps({**request, "seconds": limit}).encode(), limit)
            except BadModel as error:
                raise BadInput(error.what, expected=error.expected, got=error.got, remedy=_REMEDY) from error
            except BaseException:  # Ctrl+C during a request: its reply would be taken for that of the next one
                end(self._running)
                raise
            if reply is None:
                end(self._running)
        if reply is None:
            what = "The tokenizer does not finish with this text." if late else "The tokenizer crashed on this text."
            got = "no answer" if late else "the end of its process, perhaps for lack of memory"
            raise BadInput(what, expected=f"tokens within {limit:.1f} s", got=got, remedy=_REMEDY)
        if "error" in reply:
            raise failed(reply["error"])
        return reply


def failed(reason: str) -> BadInput:
    """The error for a tokenizer that fails on a text."""
    what = "The tokenizer fails on this text."
    return BadInput(what, expected="text that its rules can encode", got=reason.partition("\n")[0][:200], remedy=_REMEDY)


def exchange(child: subprocess.Popen[bytes], data: bytes, limit: float) -> tuple[JsonDict | None, bool]:
    """A child's reply, None if the child ended; and whether it was stopped because the time was up."""
    late = threading.Event()

    def stop() -> None:
        late.set()
        child.kill()

    timer = threading.Timer(limit, stop)
    timer.daemon = True
    timer.start()
    try:
        requests, answers = child.stdin, child.stdout
        assert requests is not None and answers is not None
        write_frame(requests, data)
        reply = read_frame(answers)
    except OSError:  # the child has ended
        reply = None
    finally:
        timer.cancel()
    return (None if reply is None else json.loads(reply)), late.is_set()


def end(running: list[subprocess.Popen[bytes]]) -> None:
    """Stop a child and close its pipes."""
    while running:
        child = running.pop()
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            _close(pipe)


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with suppress(OSError):  # unwritten data has no reader
            pipe.close()
