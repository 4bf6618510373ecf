"""Llama 3's own `tokenizer.model`, as its makers publish it: the ids that tiktoken gives with it."""

from __future__ import annotations

import base64
import shutil
from pathlib import Path

import pytest

from circuitlab.model.loading.gguf.splitting import LLAMA3
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from circuitlab.model.text.tokenizer import Tokenizer
from tests.real_file import llama3_tokenizer
from tests.unit.families.test_byte_ranks import reference, texts

# by tiktoken 0.14 from that file, with the expression and the special tokens of the code beside it
IDS = {
    "Mr and Mrs Dursley of number four, Privet Drive, were proud to say": (
        12555, 323, 18083, 423, 1759, 3258, 315, 1396, 3116, 11, 15801, 295, 16542, 11, 1051, 12691, 311, 2019,
    ),
    "  two  blanks\n\n\tand tabs\r\n": (220, 1403, 220, 79640, 271, 53577, 23204, 319),
    "1234 12 3.14159 2026": (4513, 19, 220, 717, 220, 18, 13, 9335, 2946, 220, 2366, 21),
    "été, naïve, œuvre ☕": (39883, 11, 95980, 588, 11, 99225, 61480, 26182, 243),
    "日本語と中文": (102433, 102158, 19732, 108891),
    "don't I'm we'll they've IT'S": (15357, 956, 358, 2846, 584, 3358, 814, 3077, 8871, 13575),
    "def f(x):\n    return x ** 2  # square": (755, 282, 2120, 997, 262, 471, 865, 3146, 220, 17, 220, 674, 9518),
    "a" * 40: (70540,) * 5,
    " " * 130: (5351, 48649),
    "Ελληνικά и русский, العربية": (100477, 109164, 102434, 7740, 110950, 101591, 11, 110356),
    "👩\u200d👩\u200d👧 e\u0301 \u200b\x00ſ": (
        9468, 239, 102, 102470, 9468, 239, 102, 102470, 9468, 239, 100, 384, 54939, 30848, 188, 129, 123,
    ),
    "<|begin_of_text|>[INST]": (27, 91, 7413, 3659, 4424, 91, 31868, 65562, 60),
}  # fmt: skip


@pytest.fixture(scope="module")
def published() -> Path:
    return llama3_tokenizer()


@pytest.fixture(scope="module")
def ours(published: Path, tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("llama3")
    shutil.copy(published, folder / "tokenizer.model")
    result = find_tokenizer(folder)
    assert result is not None
    return result


@pytest.mark.slow
def test_ids_are_those_of_tiktoken(ours: Tokenizer) -> None:
    assert (ours.n_tokens, ours.bos, ours.adds_bos) == (128_256, 128_000, True)
    for text, ids in IDS.items():
        assert ours.encode(text) == ids, text
        assert ours.decode(ids) == text
    assert ours.encode("<|begin_of_text|>a<|eot_id|>", special=True) == (128_000, 64, 128_009)


@pytest.mark.slow
def test_ids_of_many_texts_are_those_of_the_ranks(ours: Tokenizer, published: Path) -> None:
    ranks = {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, published.read_bytes().splitlines())}
    for text in texts():
        assert list(ours.encode(text)) == reference(ranks, LLAMA3, text), text
