"""The forward pass against the definition written out in loops, and against `transformers`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.errors import BadInput
from circuitlab.model.folding import under
from circuitlab.model.forward import forward, forward_from, logits, patterns
from circuitlab.model.loading import open_model
from circuitlab.model.subject import Conventions
from tests.models import CONFIGS, TINY, weights_of
from tests.reference.slow_forward import SlowModel

TOKENS = (0, 3, 5, 1, 3, 5, 2, 6, 3)


def _close(ours: torch.Tensor, slow: np.ndarray) -> None:
    scale = max(1.0, float(np.abs(slow).max()))
    np.testing.assert_allclose(ours.numpy() / scale, slow / scale, atol=2e-5)


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_streams_and_patterns_are_those_of_the_definition(name: str) -> None:
    weights, tensors = weights_of(CONFIGS[name])
    run = forward(weights, TOKENS)
    slow_logits, streams, slow_patterns = SlowModel(CONFIGS[name], tensors).run(TOKENS)
    _close(run.logits(), slow_logits)
    for layer in range(CONFIGS[name].n_layers):
        _close(run.get("resid_pre", layer), streams[layer])
        _close(run.get("pattern", layer), slow_patterns[layer])


@pytest.mark.parametrize("name", CONFIGS)
def test_a_batch_gives_what_single_prompts_give(name: str) -> None:
    weights, _ = weights_of(CONFIGS[name])
    prompts = torch.tensor([TOKENS, TOKENS[::-1]])
    singles = torch.stack([forward(weights, tuple(map(int, p))).logits() for p in prompts])
    with torch.inference_mode():
        torch.testing.assert_close(logits(weights, prompts), singles, atol=1e-4, rtol=1e-4)
    for layer, pattern in patterns(weights, prompts):
        torch.testing.assert_close(pattern[1], forward(weights, TOKENS[::-1]).get("pattern", layer), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("keep", [0, 1, 5, 8, 9])
def test_a_changed_suffix_reuses_the_prefix(name: str, keep: int) -> None:
    weights, _ = weights_of(CONFIGS[name])
    before = forward(weights, (*TOKENS[:keep], 4, 4, 4, 4)[:12])
    fresh, reused = forward(weights, TOKENS), forward(weights, TOKENS, prefix=before)
    assert reused.reused == min(keep, len(TOKENS) - 1)
    assert fresh.reused == 0
    torch.testing.assert_close(reused.logits(), fresh.logits(), atol=1e-4, rtol=1e-5)
    for layer in range(CONFIGS[name].n_layers):
        for what in ("resid_pre", "q", "k", "v", "pattern"):
            torch.testing.assert_close(reused.get(what, layer), fresh.get(what, layer), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_what_is_recomputed_adds_up_to_the_stream(name: str) -> None:
    config = CONFIGS[name]
    weights, _ = weights_of(config)
    run = forward(weights, TOKENS)
    for layer in range(config.n_layers):
        following = run.get("resid_pre", layer + 1) if layer + 1 < config.n_layers else run.final
        torch.testing.assert_close(run.get("resid_post", layer), following)
        if config.norm_placement == "pre":
            total = run.get("resid_pre", layer) + run.get("attn_out", layer)
            total = total + (0 if config.attention_only else run.get("mlp_out", layer))
            torch.testing.assert_close(total, following, atol=1e-4, rtol=1e-4)
            heads = run.get("result", layer).sum(0)
            bias = weights.layer(layer).b_O
            torch.testing.assert_close(run.get("attn_out", layer), heads if bias is None else heads + bias, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_a_sweep_that_starts_at_a_layer_ends_where_the_whole_pass_ends(name: str) -> None:
    weights, _ = weights_of(CONFIGS[name])
    run = forward(weights, TOKENS)
    out = forward_from(weights, run, 1, torch.stack([run.get("resid_pre", 1)] * 2))
    torch.testing.assert_close(out[1], run.logits(), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CONFIGS)
def test_folding_and_centring_keep_log_probabilities(name: str) -> None:
    weights, _ = weights_of(CONFIGS[name])
    raw = forward(weights, TOKENS).log_probs()
    for fold in (True, False):
        for centre in (True, False):
            seen = under(weights, Conventions(fold, centre))
            torch.testing.assert_close(forward(seen, TOKENS).log_probs(), raw, atol=2e-4, rtol=1e-4)
    double = forward(under(weights, Conventions(dtype="float64")), TOKENS).log_probs()
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), raw, atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize("placement", ["pre", "both", "post_sublayer"])
@pytest.mark.parametrize("final", [True, False])
def test_what_reads_behind_a_folded_layer_norm_has_no_part_that_the_norm_takes_off(placement: Any, final: bool) -> None:
    """A multiple of 1 added to what a head reads or to W_U before its gain changes no logit; so it is in no folded weight."""
    config = replace(CONFIGS["gpt2"], norm_placement=placement, final_norm=final)
    weights, _ = weights_of(config)
    for conventions in (Conventions(centre=False, dtype="float64"), Conventions(dtype="float64")):
        folded, tokens = under(weights, conventions), torch.tensor([[0, 5, 9, 5]])
        differ = logits(folded, tokens) - logits(under(weights, Conventions(False, False, "float64")), tokens)
        torch.testing.assert_close(differ, differ.mean(-1, keepdim=True).expand_as(differ), atol=1e-10, rtol=0)
        if not conventions.centres_writes(config):
            reads = [folded.layer(0).W_Q.mean(1), folded.layer(0).mlp.W_in.mean(0)] if placement != "post_sublayer" else []
            reads += [folded.unembed().W_U.mean(0)] if final else []
            for mean in reads:
                torch.testing.assert_close(mean, torch.zeros_like(mean), atol=1e-12, rtol=0)


def test_folding_leaves_nothing_to_fold() -> None:
    weights, _ = weights_of(CONFIGS["gpt2"])
    folded = under(weights, Conventions())
    assert folded.layer(0).attn_norm.gain is None
    assert folded.unembed().norm.gain is None
    assert float(folded.unembed().W_U.mean(dim=1).abs().max()) < 1e-6
    assert float(folded.layer(1).W_O.mean(dim=-1).abs().max()) < 1e-6


def test_losses_are_minus_the_log_probability_of_what_follows() -> None:
    weights, _ = weights_of(TINY)
    run = forward(weights, TOKENS)
    wanted = -run.log_probs()[torch.arange(8), torch.tensor(TOKENS[1:])]
    torch.testing.assert_close(run.losses(), wanted)
    assert forward(weights, (3,)).losses().shape == (0,)


def test_a_run_keeps_little_and_counts_it() -> None:
    weights, _ = weights_of(CONFIGS["gpt2"])
    run, c = forward(weights, TOKENS), CONFIGS["gpt2"]
    kept = 4 * len(TOKENS) * c.n_layers * (c.d_model + 3 * c.n_heads * c.d_head)
    assert kept <= run.nbytes <= 1.3 * kept


@pytest.mark.parametrize(
    ("tokens", "words"),
    [((), "empty"), (tuple([1] * 49), "longer"), ((1, 999), "vocabulary"), ((-1,), "vocabulary")],
)
def test_prompts_that_cannot_be_run_are_refused(tokens: tuple[int, ...], words: str) -> None:
    weights, _ = weights_of(TINY)
    with pytest.raises(BadInput, match=words):
        forward(weights, tokens)


@pytest.mark.parametrize("n", [1, 2, 17, 40])
@pytest.mark.parametrize("tied", [True, False])
def test_gpt2_agrees_with_transformers(tmp_path: Path, n: int, tied: bool) -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(n)
    config = transformers.GPT2Config(
        n_layer=3, n_head=4, n_embd=48, vocab_size=97, n_positions=40, attn_implementation="eager",
        tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    theirs = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    theirs.save_pretrained(tmp_path)
    opened = open_model(tmp_path)
    tokens = tuple(torch.randint(0, 97, (n,)).tolist())
    with torch.no_grad():
        wanted = theirs(torch.tensor([tokens]), output_attentions=True)
    run = forward(opened.weights, tokens)
    torch.testing.assert_close(run.logits(), wanted.logits[0], atol=1e-5, rtol=1e-5)
    for layer in range(3):
        torch.testing.assert_close(run.get("pattern", layer), wanted.attentions[layer][0], atol=1e-5, rtol=1e-5)


def test_mapped_weights_give_the_same_numbers_as_resident_ones(tmp_path: Path) -> None:
    from tests.models import directory

    path = directory(tmp_path / "m")
    resident, mapped = open_model(path), open_model(path, "mapped")
    found, wanted = (forward(opened.weights, TOKENS).logits() for opened in (mapped, resident))
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-5)
