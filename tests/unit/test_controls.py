"""A control without layers: what is none is refused, and tokenizers that cut a text differently are not one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import circuitlab.api as lab
from circuitlab.disk.paths import model_dir
from circuitlab.errors import BadInput
from circuitlab.model.text.tokenizer import Tokenizer


def test_a_model_with_layers_is_no_control_of_a_series() -> None:
    with pytest.raises(BadInput, match="more than the previous token"):
        lab.open("attn-only-1l").compute("training_series", models="attn-only-1l", control="attn-only-2l")


def test_tokens_that_are_cut_out_of_a_text_make_another_tokenizer(tmp_path: Path) -> None:
    file = model_dir("attn-only-2l") / "tokenizer.json"
    spec = json.loads(file.read_text("utf-8"))
    cut = {"content": "her", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    spec["added_tokens"].append({"id": spec["model"]["vocab"]["her"], **cut})
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec), "utf-8")
    one, other = Tokenizer.from_file(file), Tokenizer.from_file(tmp_path / "tokenizer.json")
    assert one.encode("the grey heron") != other.encode("the grey heron")
    assert one.content != other.content
    assert one.content == Tokenizer.from_file(file).content
