"""Vocabularies of real models as GGUF files, from llama.cpp's own tokenizer tests, and the ids that they must give.

The files are not the project's: they lie beside the checkout, in `shared/fixtures/gguf_vocab`, or where the environment says.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from circuitlab.model.files.gguf.header import read_header
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.loading.gguf.vocabulary import vocabulary
from tests.conftest import SHARED

PLACE = Path(os.environ.get("CIRCUITLAB_GGUF_VOCABULARIES", SHARED / "fixtures" / "gguf_vocab"))
KINDS = (
    "command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "refact",
    "starcoder",
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_ids_are_those_of_the_original_tokenizer(kind: str) -> None:
    file = PLACE / f"ggml-vocab-{kind}.gguf"
    if not file.is_file():
        pytest.skip(f"needs ../shared: {file.name}")
    if b"\xef\xbf\xbd" in file.read_bytes()[:600]:
        pytest.skip(f"needs ../shared: {file.name} as bytes, not as a text")
    tokenizer = vocabulary(read_header(WholeFile(file)))
    assert tokenizer is not None
    texts = file.with_name(f"{file.name}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    lines = file.with_name(f"{file.name}.out").read_text().split("\n")
    wrong = {}
    for text, line in zip(texts, lines, strict=False):
        ids, expected = list(tokenizer.encode(text)), [int(x) for x in line.split()]
        if ids != expected:
            wrong[text] = (ids, expected)
    assert len(texts) >= 40 and not wrong
