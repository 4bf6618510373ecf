"""What is called centred is centred, and nothing else: of every kind of model, beside a forward pass in plain numpy.

What writes to the stream is centred where every reader is a LayerNorm; W_U where no soft cap follows. Answers show the one in
the lengths of the stream, the other in the logits.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.attribution.residual_norms import ResidualNormsParams
from circuitlab.analysis.behaviour.predictions import PredictionsParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.panel import panels
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.report.render import figure_of
from circuitlab.state.state import State
from tests.zoo.forward import Model
from tests.zoo.models import MODELS, prompt, tensors_of, written

BOTH, WRITES, OUT, NEITHER = "centred", "writing weights centred", "W_U centred", "not centred"
NAMED = {
    BOTH: ("gpt2", "parallel", "sinusoidal layernorm", "shortformer layernorm", "shared expert", "no layer normed"),
    OUT: ("llama", "experts", "post-residual", "olmo 2", "post-sublayer layernorm", "attention only", "gemma 3"),
    NEITHER: ("gemma 2",),
}
KINDS = {name: (word, MODELS[name]) for word, names in NAMED.items() for name in names} | {
    "a soft cap behind LayerNorms": (WRITES, replace(MODELS["gpt2"], logit_soft_cap=4.0)),
    "experts before a soft cap": (WRITES, replace(MODELS["shared expert"], logit_soft_cap=4.0)),
    "LayerNorms without the last": (OUT, replace(MODELS["gpt2"], final_norm=False)),
    "a soft cap behind RMS norms": (NEITHER, replace(MODELS["llama"], logit_soft_cap=4.0)),
}

OF_OTHERS = {"side_by_side"}  # panels whose captions are of several models


class Bench:
    """A model of the zoo in an engine, and its own pass over one prompt."""

    def __init__(self, path: Path, kind: str) -> None:
        self.word, config = KINDS[kind]
        tensors, self.tokens = tensors_of(config), prompt(config, 11)
        self.own = Model(config, tensors)(self.tokens)
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{written(path, config, tensors)}")

    def __call__(self, name: str, params: Any, conventions: Conventions) -> tuple[Any, str]:
        """An answer, and what it says of centring."""
        subject = Subject(self.ref, self.tokens, (), conventions)
        result: Any = self.engine.answer(Request.named(name, params, subject)).result
        return result, said(result.conventions)


def said(words: tuple[str, ...]) -> str:
    (word,) = {BOTH, WRITES, OUT, NEITHER} & {word.rpartition(": ")[2] for word in words}  # "heads: …" of one of several answers
    return word


def shown(bench: Bench, conventions: Conventions, word: str) -> None:
    """That both answers say `word`, and that their numbers are what it says."""
    streams, of_streams = bench("residual_norms", ResidualNormsParams(), conventions)
    lengths = dict(zip(streams.stages, streams.stream, strict=True))
    for layer, block in enumerate(bench.own.blocks):
        x = block.pre - block.pre.mean(-1, keepdims=True) if word in (BOTH, WRITES) else block.pre
        np.testing.assert_allclose(lengths[f"L{layer} in"], np.linalg.norm(x, axis=-1), rtol=1e-9)
    for position in (0, 4, 10):
        found, of_logits = bench("predictions", PredictionsParams(position, whole=True), conventions)
        logits, wanted = found.all_logits, bench.own.logits[position]
        np.testing.assert_allclose(logits, wanted - wanted.mean() if word in (BOTH, OUT) else wanted, atol=1e-9)
        np.testing.assert_allclose(found.log_probs, bench.own.log_probs[position][found.ids], atol=1e-9)
    assert (of_streams, of_logits) == (word, word)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fold", [True, False], ids=["folded", "not folded"])
def test_the_word_is_what_was_done(tmp_path: Path, kind: str, fold: bool) -> None:
    bench = Bench(tmp_path / "m", kind)
    shown(bench, Conventions(fold_norm=fold, dtype="float64"), bench.word)
    shown(bench, Conventions(fold_norm=fold, centre=False, dtype="float64"), NEITHER)


def test_where_it_would_be_seen() -> None:
    """That the means that centring takes away are there, so that the numbers above tell the words apart."""
    for _, config in KINDS.values():
        own = Model(config, tensors_of(config))(prompt(config, 11))
        assert np.abs(own.logits.mean(-1)).min() > 1e-4
        assert all(np.abs(block.pre.mean(-1)).max() > 1e-2 for block in own.blocks)


@pytest.mark.parametrize("kind", KINDS)
def test_every_caption_says_it(tmp_path: Path, kind: str) -> None:
    bench = Bench(tmp_path / "m", kind)
    for centre, word in ((True, bench.word), (False, NEITHER)):
        state = replace(State(bench.ref).with_tokens(bench.tokens), conventions=Conventions(centre=centre))
        captions = dict[str, str]()
        for name in panels().keys() - OF_OTHERS:
            try:
                parts = figure_of(bench.engine, panels()[name], state).caption_parts
            except CircuitLabError:  # it has no place in this model
                continue
            captions |= {name: said(parts)} if parts else {}  # nothing is drawn without a reference
        assert "predictions" in captions and captions == dict.fromkeys(captions, word)
