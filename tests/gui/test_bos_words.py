"""What the switch for BOS says: the token, what the model's files do, and what training used it for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.figures.contracts.facts import Facts, facts_of
from circuitlab.gui.docks.bos_words import bos_words
from circuitlab.gui.shell.window import Window
from circuitlab.model.subject import ModelRef
from tests.models import CONFIGS, directory


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    """Those of a small model with a tokenizer."""
    path = directory(tmp_path / "m", CONFIGS["gpt2"])
    return facts_of(Engine(ModelStore()), ModelRef(f"file:{path}"))


@pytest.mark.parametrize(
    ("spelling", "training"),
    [
        ("<|endoftext|>", "In training it stood between two documents."),  # GPT-2, Pythia
        ("<|im_start|>", "In training it began each message of a conversation."),  # SmolLM2-135M-Instruct
        ("<s>", ""),
    ],
)
def test_the_token_what_the_files_do_and_its_part_in_training(facts: Facts, spelling: str, training: str) -> None:
    of: Any = replace(facts, bos=7, token_text=lambda id: {7: spelling}[id])
    for prepended, says in ((True, "put it before every text."), (False, "put nothing before a text.")):
        words = bos_words(replace(of, config=replace(facts.config, prepend_bos=prepended)))
        assert words.startswith(f"BOS is {spelling}, id 7. This model's files {says}")
        assert words.endswith(training or says)


def test_a_model_without_one_says_so(facts: Facts) -> None:
    assert bos_words(replace(facts, bos=None)) == "No BOS token in this model's tokenizer"
    assert bos_words(replace(facts, bos=None, has_tokenizer=False)) == "Without a tokenizer no token is known as BOS"


def test_the_window_says_it_of_the_open_model(window: Window, qtbot: QtBot) -> None:
    facts = window.context.facts()
    assert facts.bos is not None
    assert f"id {facts.bos}" in window.prompt.front.toolTip() and "before" in window.prompt.front.toolTip()
