"""A prompt far longer than the context: it is not read to its end, what was read is said, and what it costs is bounded."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from circuitlab import api
from circuitlab.errors import BadInput, TooLong
from circuitlab.model.text import tokenizer as module
from circuitlab.state.model_change import state_on
from circuitlab.state.state import State
from tests.models import TINY, byte_tokenizer, directory

LONG = "abcdefgh " * 20_000  # characters are tokens here


def test_a_text_that_just_does_not_fit_is_counted_exactly(tmp_path: Path) -> None:
    model = api.open(str(directory(tmp_path / "m")))
    with pytest.raises(TooLong) as caught:
        model.compute("token_loss", text="a" * 60)
    assert caught.value.got == "61" and "48" in caught.value.expected and caught.value.remedy  # with BOS


def test_a_text_of_which_a_beginning_is_too_long_is_read_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer, read = byte_tokenizer(), list[int]()
    whole = tokenizer._ids
    monkeypatch.setattr(tokenizer, "_ids", lambda text, special=False: (read.append(len(text)), whole(text, special))[1])
    with pytest.raises(TooLong) as caught:
        tokenizer.prompt(LONG, 48)
    assert max(read) < len(LONG) / 2 and f"{len(LONG):,}" in caught.value.got and f"{max(read):,}" in caught.value.got
    assert len(tokenizer.beginning(LONG, 48)) == 48 and max(read) < len(LONG) / 2
    assert tokenizer.prompt("abc", 48) == tokenizer.encode("abc")


def test_a_long_text_of_few_tokens_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A context of many long tokens: what counts is tokens, not characters."""
    tokenizer = byte_tokenizer()
    monkeypatch.setattr(module, "_AT_ONCE", 8)
    monkeypatch.setattr(module, "_CHARACTERS_A_TOKEN", 1)
    monkeypatch.setattr(tokenizer, "_ids", lambda text, special=False: tuple(range(0, len(text), 100)))
    text = "x" * 3_900
    assert tokenizer.prompt(text, 40) == tuple(range(0, 3_900, 100)) and tokenizer.long_enough(text, 40) == text
    with pytest.raises(TooLong):
        tokenizer.prompt("x" * 90_000, 40)


def test_another_model_gets_the_beginning_of_a_long_text(tmp_path: Path) -> None:
    model = api.open(str(directory(tmp_path / "m", replace(TINY, n_ctx=32))))
    moved = state_on(model.engine.store.open(model.ref), State(model.ref), LONG)
    assert len(moved.tokens) == 32 and LONG.startswith(moved.text)


def test_ids_that_no_text_gives_are_still_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput):
        api.open(str(directory(tmp_path / "m"))).compute("token_loss", tokens=[0] * 49)


PEAK = """
import resource, sys
from pathlib import Path
from circuitlab.cli.parser import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
main(["info", sys.argv[1]])
opened = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
status = main(["compute", "token_loss", sys.argv[1], "--text-file", sys.argv[2]])
print("STATUS", status, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - opened) // 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory in KiB")
def test_eight_megabytes_of_prompt_cost_little(tmp_path: Path) -> None:
    """1.9 GB before; the bound is many times what is needed."""
    text = tmp_path / "long.txt"
    text.write_text("The quick brown fox jumps over 1,000 lazy dogs.\n" * 170_000, encoding="utf-8")
    assert text.stat().st_size > 8e6
    words = [sys.executable, "-c", PEAK, "attn-only-1l", str(text)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=True)
    status, mebibytes = map(int, done.stdout.splitlines()[-1].split()[1:])
    assert status == 3 and "more than" in done.stderr and mebibytes < 300, done
