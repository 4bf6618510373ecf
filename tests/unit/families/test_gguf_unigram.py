"""Unigram vocabularies in GGUF files (`tokenizer.ggml.model` t5): ids of SentencePiece's own library; damaged ones in words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from circuitlab.errors import BadModel
from circuitlab.model.files.gguf.header import read_header
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.loading.gguf.vocabulary import vocabulary
from circuitlab.model.text.tokenizer import Tokenizer
from tests.gguf_files import add
from tests.unit.families.test_sentencepiece import PROSE, TEXTS, model_file
from tests.unit.families.test_sentencepiece_unigram import SYMBOLS, _random_texts, _table_in, cached, with_equals


def _said(library: Any, data: bytes, **changes: Any) -> dict[str, Any]:
    """The keys that the converter of llama.cpp writes for a model of SentencePiece's."""
    model = library.SentencePieceProcessor(model_proto=data)
    ids = range(model.get_piece_size())
    kinds = [2 if model.is_unknown(i) else 3 if model.is_control(i) else 4 if model.id_to_piece(i) in SYMBOLS else 1 for i in ids]
    return {
        "model": "t5",
        "tokens": [model.id_to_piece(i) for i in ids],
        "scores": [float(model.get_score(i)) for i in ids],
        "token_type": kinds,
        "add_space_prefix": True,
        "remove_extra_whitespaces": True,
        "precompiled_charsmap": _table_in(data),
    } | changes


def _opened(folder: Path, said: dict[str, Any]) -> Tokenizer:
    writer = gguf.GGUFWriter(folder / "v.gguf", "llama")
    for name, value in said.items():
        if isinstance(value, bytes):
            writer.add_array(f"tokenizer.ggml.{name}", value)
        else:
            add(writer, f"tokenizer.ggml.{name}", value)
    writer.add_tensor("none", np.zeros(32, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    result = vocabulary(read_header(WholeFile(folder / "v.gguf")))
    assert result is not None
    return result


@pytest.mark.parametrize("name", ["as it is trained if nothing is said", "symbols", "control symbols"])
def test_ids_are_those_of_sentencepiece(tmp_path: Path, name: str) -> None:
    library = pytest.importorskip("sentencepiece")
    data = cached("unigram", name)
    theirs, ours = library.SentencePieceProcessor(model_proto=data), _opened(tmp_path, _said(library, data))
    assert ours.notes == ("tokenizer of the file: SentencePiece Unigram",) and not ours.adds_bos
    for text in (*TEXTS, *PROSE, *_random_texts(500)):
        assert list(ours.encode_uncached(text)) == theirs.encode(text), text


def test_pieces_of_one_score_are_merged_from_the_left_in_bpe(tmp_path: Path) -> None:
    library, pieces = pytest.importorskip("sentencepiece"), with_equals()
    texts, scores, kinds = (list(each) for each in zip(*pieces, strict=True))
    said = {"model": "llama", "tokens": texts, "scores": scores, "token_type": kinds}
    theirs, ours = library.SentencePieceProcessor(model_proto=model_file(pieces)), _opened(tmp_path, said)
    for text in (*TEXTS, "人民中国人民", "中国人民国人", " the there the  the"):
        assert list(ours.encode_uncached(text)) == theirs.encode(text), text


@pytest.mark.parametrize(
    ("changes", "about"),
    [
        ({"precompiled_charsmap": b"\x01\x02"}, "table of characters"),
        ({"precompiled_charsmap": "text"}, "precompiled_charsmap"),
        ({"precompiled_charsmap": [1, 2]}, "precompiled_charsmap"),
        ({"token_type": [1]}, "token_type"),
        ({"scores": [float("nan")]}, "scores"),
    ],
)
def test_damaged_ones_are_typed_errors(tmp_path: Path, changes: dict[str, Any], about: str) -> None:
    library = pytest.importorskip("sentencepiece")
    said = _said(library, cached("unigram", "identity"))
    n = len(said["tokens"])
    changes = {name: value * n if name in ("token_type", "scores") else value for name, value in changes.items()}
    with pytest.raises(BadModel, match=about) as refused:
        _opened(tmp_path, said | changes)
    assert refused.value.remedy
