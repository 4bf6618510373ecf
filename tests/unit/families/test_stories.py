"""A trained Llama with grouped heads: its greedy text is the reference's, byte for byte."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from circuitlab.model.forward import forward
from circuitlab.model.loading import Keep, open_model
from circuitlab.model.run import Run


def pieces(file: Path) -> list[bytes]:
    """The tokens' bytes of a llama2.c vocabulary: a length, then (score, length, bytes) of each."""
    data, at, result = file.read_bytes(), 4, []
    while at < len(data):
        (length,) = struct.unpack_from("<i", data, at + 4)
        result.append(data[at + 8 : at + 8 + length])
        at += 8 + length
    return result


@pytest.mark.parametrize("keep", ["resident", "mapped"])
def test_stories_greedy_text_is_the_reference_s(shared_dir: Path, keep: Keep) -> None:
    folder = shared_dir / "checkpoints" / "stories260K"
    wanted = (folder / "expected_greedy.txt").read_bytes()
    opened, vocabulary = open_model(folder, keep), pieces(folder / "tok512.bin")
    assert opened.family == "Llama"
    assert opened.weights.config.n_kv_heads == 4
    tokens, text, run = (1,), b"", None
    while len(text) < len(wanted):
        run: Run | None = forward(opened.weights, tokens, prefix=run)
        tokens = (*tokens, int(run.logits()[-1].argmax()))
        assert tokens[-1] not in (1, 2), "the text ended early"
        text = b"".join(vocabulary[t] for t in tokens[1:]).replace(b"<0x0A>", b"\n").removeprefix(b" ")
    assert text == wanted
