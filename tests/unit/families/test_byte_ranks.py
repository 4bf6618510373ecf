"""Vocabularies of bytes with ranks (Mistral's tekken.json, Llama 3's tokenizer.model): the ids of a reference; hostile files."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from circuitlab.errors import BadModel
from circuitlab.model.loading import open_model
from circuitlab.model.loading.gguf.splitting import LLAMA3, TEKKEN
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from circuitlab.model.text.tokenizer import Tokenizer
from tests.unit.families.test_sentencepiece import PROSE, TEXTS
from tests.unit.families.test_tokenizers import model_in, write

N = 340  # tokens beside special ones
ALPHABET = "ab the  \n\t.,<>s/THIS▁éß日本語🙂01\u0301\u200b\x00ﬁ한'sd\r'LL"


def trained(n: int) -> list[bytes]:
    """Bytes, and what the most frequent neighbours of a text join to, by rank."""
    ranked = [bytes((b,)) for b in range(256)]
    words = [[bytes((b,)) for b in word.encode()] for text in (*PROSE, "日本語 éß" * 4) for word in _split(LLAMA3, text)]
    while len(ranked) < n:
        counts: dict[bytes, int] = {}
        for word in words:
            for a, b in pairwise(word):
                counts[a + b] = counts.get(a + b, 0) + 1
        new = max((token for token in counts if token not in ranked), key=lambda token: (counts[token], token))
        ranked.append(new)
        words = [_merged(word, {token: i for i, token in enumerate(ranked)}) for word in words]
    return ranked


def _split(expression: str, text: str) -> list[str]:
    return pytest.importorskip("regex").findall(expression, text)


def _merged(parts: Sequence[bytes], ranks: Mapping[bytes, int]) -> list[bytes]:
    """The neighbours whose bytes have the lowest rank are joined, the first of equals, until none have one."""
    parts = list(parts)
    while len(parts) > 1:
        rank, at = min((ranks.get(parts[i] + parts[i + 1], 10**9), i) for i in range(len(parts) - 1))
        if rank == 10**9:
            break
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    return parts


def reference(ranks: Mapping[bytes, int], expression: str, text: str) -> list[int]:
    """Ranks of a text's tokens."""
    out: list[int] = []
    for word in _split(expression, text):
        data = word.encode()
        out += [ranks[data]] if data in ranks else [ranks[t] for t in _merged([bytes((b,)) for b in data], ranks)]
    return out


vocabulary = lru_cache(lambda: trained(N))
ranks_of_it = lru_cache(lambda: {token: i for i, token in enumerate(vocabulary())})


def tekken(**changes: Any) -> dict[str, Any]:
    """The contents of a `tekken.json`, with more tokens than are used, as Mistral's have."""
    ranked = [*vocabulary(), b"never used"]
    vocab = [{"rank": i, "token_bytes": base64.b64encode(t).decode(), "token_str": None} for i, t in enumerate(ranked)]
    sizes = {"num_vocab_tokens": len(ranked), "default_vocab_size": N + 30, "default_num_special_tokens": 30}
    return {"config": {"pattern": TEKKEN, "version": "v3", **sizes}, "vocab": vocab} | changes


def opened(folder: Path, **changes: Any) -> Tokenizer:
    """The tokenizer of a folder with a `tekken.json`."""
    (folder / "tekken.json").write_text(json.dumps(tekken(**changes)))
    result = find_tokenizer(folder)
    assert result is not None
    return result


def texts() -> list[str]:
    draw = random.Random(4)
    some = ["".join(draw.choice(ALPHABET) for _ in range(draw.randint(1, 40))) for _ in range(500)]
    return [*TEXTS, *PROSE, *some, *("a" * n for n in range(1, 40)), *("ab" * n for n in range(1, 40)), "<s>[INST] a"]


def test_ids_of_tekken_are_those_of_the_ranks_behind_the_special_tokens(tmp_path: Path) -> None:
    ours = opened(tmp_path)
    assert (ours.n_tokens, ours.bos, ours.adds_bos) == (N + 30, 1, True)
    assert [ours.raw(i) for i in (0, 1, 2, 3, 19, 20, 29)] == [
        "<unk>", "<s>", "</s>", "[INST]", "[TOOL_CONTENT]", "<SPECIAL_20>", "<SPECIAL_29>",
    ]  # fmt: skip
    for text in texts():
        ids = ours.encode(text)
        assert list(ids) == [30 + rank for rank in reference(ranks_of_it(), TEKKEN, text)], text
        assert ours.decode(ids) == text
    assert all(ours.is_special(i) for i in range(30)) and not ours.is_special(30)


def test_special_tokens_of_a_tekken_file_have_the_names_that_stand_in_it(tmp_path: Path) -> None:
    named = [{"rank": i, "token_str": text, "is_control": True} for i, text in enumerate(("<unk>", "<s>", "</s>", "[THINK]"))]
    ours = opened(tmp_path, special_tokens=named)
    assert [ours.raw(i) for i in (2, 3, 4)] == ["</s>", "[THINK]", "<SPECIAL_4>"]


def test_a_folder_of_mistral_s_opens_with_its_text(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "m", N + 30)
    (folder / "tekken.json").write_text(json.dumps(tekken()))
    model = open_model(folder)
    assert model.weights.tokenizer is not None and model.weights.config.prepend_bos
    assert any("tekken.json, as Mistral's Tekken" in note for note in model.notes)


def test_a_pattern_that_is_not_known_is_harmless_runs_apart(tmp_path: Path) -> None:
    config = tekken()["config"] | {"pattern": "(a+)+$|."}
    ours = opened(tmp_path, config=config)
    assert not ours.quick("a") and ours.encode("ab")


HOSTILE: dict[str, Any] = {
    "empty": {},
    "a list": [],
    "deep": "[" * 100_000,
    "no pattern": {"config": {}, "vocab": []},
    "no numbers": {"config": {"pattern": "x", "default_vocab_size": "many"}, "vocab": []},
    "too many": {"config": {"pattern": "x", "default_vocab_size": 10**12, "default_num_special_tokens": 10**11}, "vocab": []},
    "fewer": {"config": {"pattern": "x", "default_vocab_size": 300, "default_num_special_tokens": 0}, "vocab": []},
    "no ranks": {"config": {"pattern": "x"}, "vocab": [{"token_bytes": "AA=="}]},
    "out of order": {"config": {"pattern": "x"}, "vocab": [{"rank": 1, "token_bytes": "AA=="}], "special_tokens": []},
    "no base64": {"config": {"pattern": "x"}, "vocab": [{"rank": 0, "token_bytes": "?"}], "special_tokens": []},
    "not every byte": {"config": {"pattern": "x"}, "vocab": [{"rank": 0, "token_bytes": "AA=="}], "special_tokens": []},
    "special beyond": {"config": {"pattern": "x"}, "vocab": [], "special_tokens": [{"rank": 7, "token_str": "<s>"}]},
    "special without text": {"config": {"pattern": "x"}, "vocab": [], "special_tokens": [{"rank": 0, "token_str": None}]},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_damaged_tekken_files_are_typed_errors(tmp_path: Path, name: str) -> None:
    content = HOSTILE[name]
    (tmp_path / "tekken.json").write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(BadModel, match=r"tekken\.json cannot be read"):
        find_tokenizer(tmp_path)


@pytest.mark.parametrize("rank", [float, str, lambda rank: bool(rank) if rank < 2 else rank])
def test_ranks_that_are_no_whole_numbers_are_refused(tmp_path: Path, rank: Any) -> None:
    file = tekken()
    for token in file["vocab"]:
        token["rank"] = rank(token["rank"])
    (tmp_path / "tekken.json").write_text(json.dumps(file))
    with pytest.raises(BadModel, match=r"tekken\.json cannot be read") as caught:
        find_tokenizer(tmp_path)
    assert "order of their ranks" in caught.value.got


def test_what_stands_for_the_unknown_is_no_bos(tmp_path: Path) -> None:
    write(tmp_path, config={"bos_token_id": 0})
    ours = opened(tmp_path)
    assert ours.raw(0) == "<unk>" and (ours.unknown, ours.bos) == (0, 1)


def test_tokens_that_are_spelled_alike_are_refused(tmp_path: Path) -> None:
    file = tekken()
    file["vocab"][300] = file["vocab"][301] | {"rank": 300}
    (tmp_path / "tekken.json").write_text(json.dumps(file))
    with pytest.raises(BadModel, match="spelled differently"):
        find_tokenizer(tmp_path)


# -- Llama 3 -----------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1)
def llama3_ranks() -> tuple[bytes, ...]:
    """As many tokens as Llama 3 has; those behind the trained ones stand for no text in UTF-8."""
    return (*vocabulary(), *(b"\xff\xfe" + i.to_bytes(3, "big") for i in range(128_000 - N)))


def llama3_file() -> bytes:
    """Their lines."""
    return b"".join(base64.b64encode(token) + b" %d\n" % i for i, token in enumerate(llama3_ranks()))


@pytest.mark.parametrize("name", ["tokenizer.model", "original/tokenizer.model"])
def test_llama_3_s_own_file_gives_the_ids_of_its_ranks(tmp_path: Path, name: str) -> None:
    (tmp_path / "original").mkdir()
    (tmp_path / name).write_bytes(llama3_file())
    table = {"128010": {"content": "<|python_tag|>", "special": True}}
    write(tmp_path, tokenizer_config={"added_tokens_decoder": table, "bos_token": "<|begin_of_text|>"})
    ours = find_tokenizer(tmp_path)
    assert ours is not None
    assert (ours.n_tokens, ours.bos, ours.adds_bos) == (128_256, 128_000, True)
    assert [ours.raw(128_000 + i) for i in (1, 6, 7, 8, 9, 10, 255)] == [
        "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>",
        "<|python_tag|>", "<|reserved_special_token_250|>",
    ]  # fmt: skip
    for text in texts():
        assert list(ours.encode(text)) == reference(ranks_of_it(), LLAMA3, text), text


def test_another_list_of_tiktoken_s_is_named_and_a_damaged_one_refused(tmp_path: Path) -> None:
    folder = model_in(tmp_path / "m", 500)
    (folder / "tokenizer.model").write_bytes(b"IQ== 0\nIg== 1\n")
    assert any("tiktoken with 2 tokens" in note for note in open_model(folder).notes)
    whole = llama3_file()
    for damaged in (
        whole.replace(b" 77\n", b" 78\n", 1),
        whole.replace(b"IQ== ", b"I?== ", 1),
        whole.replace(b" 900\n", b"\n", 1),
    ):
        (tmp_path / "tokenizer.model").write_bytes(damaged)
        with pytest.raises(BadModel, match=r"tokenizer\.model cannot be read"):
            find_tokenizer(tmp_path)
