"""What every family is held to: `transformers` on the same random weights, at several lengths and in both conventions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.logit_lens import LogitLensParams
from circuitlab.analysis.attribution.path_expansion import PathExpansionParams
from circuitlab.analysis.attribution.score_expansion import ScoreExpansionParams
from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.circuits.qk_table import QkTableParams
from circuitlab.analysis.composition.scores import CompositionParams
from circuitlab.analysis.interventions.ablation import AblationParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.figures.contracts.panel import find_panel
from circuitlab.model.folding import under
from circuitlab.model.forward import forward, logits
from circuitlab.model.loading import Opened, open_model
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.model.weights import parameters_of
from circuitlab.report.render import figure_of
from circuitlab.state.state import State

LENGTHS = (1, 2, 7, 13)
PANELS = ("model", "attention", "composition", "predictions", "circuits", "logit_lens", "attribution")


def configuration(kind: str, sizes: Mapping[str, Any], changes: Mapping[str, Any]) -> Any:
    """The configuration of that class of `transformers`: a family's small sizes, and what one case changes."""
    return getattr(pytest.importorskip("transformers"), kind)(**{**sizes, **changes})


def saved(path: Path, config: Any, dtype: torch.dtype = torch.float32, shards: str = "5GB") -> Any:
    """A random model of `transformers` saved under `path`; weights large enough that attention is not uniform."""
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            spread = 0.3 if p.dim() > 1 else 0.2
            p.add_(spread * torch.randn_like(p)) if "norm" in name or p.dim() == 1 else p.copy_(spread * torch.randn_like(p))
    model.to(dtype).save_pretrained(path, max_shard_size=shards)
    return model


def assert_reopened_agrees(path: Path) -> Opened:
    """Logits of the files at `path`, as they are now, against those of `transformers`, which reads the same files."""
    transformers = pytest.importorskip("transformers")
    reference = transformers.AutoModelForCausalLM.from_pretrained(path, attn_implementation="eager").eval()
    ids = torch.randint(0, 31, (1, 23), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        expected = reference(ids).logits
    opened = open_model(path)
    assert torch.allclose(logits(opened.weights, ids), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)
    return opened


def assert_agrees(path: Path, model: Any, tolerance: float = 1e-4) -> Opened:
    """Logits, patterns and folded log-probabilities of the saved model against `model`'s own."""
    opened = open_model(path)
    c = opened.weights.config
    assert parameters_of(opened.weights) == sum(p.numel() for p in model.parameters()), "parameters, shared ones once"
    assert parameters_of(under(opened.weights, Conventions())) == parameters_of(opened.weights)
    generator = torch.Generator().manual_seed(1)
    for n in (*[m for m in LENGTHS if m <= c.n_ctx], min(c.n_ctx, 40)):
        ids = torch.randint(0, c.d_vocab, (n,), generator=generator)
        with torch.no_grad():
            theirs = model(ids[None], output_attentions=True)
        run = forward(opened.weights, tuple(ids.tolist()))
        _close(run.logits(), theirs.logits[0], tolerance, f"logits of {n} tokens")
        for i in range(c.n_layers):
            _close(run.get("pattern", i), theirs.attentions[i][0], tolerance, f"attention of layer {i}, {n} tokens")
        folded = forward(under(opened.weights, Conventions()), tuple(ids.tolist()))
        _close(
            folded.log_probs(), torch.log_softmax(theirs.logits[0].float(), -1), max(tolerance, 2e-4), "folded log-probabilities"
        )
    ids = tuple(torch.randint(0, c.d_vocab, (min(c.n_ctx, 20),), generator=generator).tolist())
    mapped = forward(open_model(path, "mapped").weights, ids)
    _close(mapped.logits(), forward(opened.weights, ids).logits(), 1e-6, "mapped against resident")
    return opened


def assert_agrees_in_bfloat16(path: Path, config: Any, tolerance: float = 5e-3) -> None:
    """A model saved in bfloat16: within 1e-4 of `transformers` computing in float32 from the same rounded weights, and of
    `transformers` computing in bfloat16, whose own rounding is larger, on average within `tolerance` of the largest value."""
    transformers = pytest.importorskip("transformers")
    saved(path, config, torch.bfloat16)
    loaded = lambda dtype: transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype=dtype, attn_implementation="eager", local_files_only=True
    ).eval()
    opened = assert_agrees(path, loaded(torch.float32))
    ids = tuple(range(min(6, opened.weights.config.d_vocab)))
    run = forward(opened.weights, ids)
    with torch.no_grad():
        theirs = loaded(torch.bfloat16)(torch.tensor(ids)[None], output_attentions=True)
    for what, ours, rounded in (
        ("logits", run.logits(), theirs.logits[0]),
        *((f"attention of layer {i}", run.get("pattern", i), a[0]) for i, a in enumerate(theirs.attentions)),
    ):
        off = (ours - rounded.float()).abs() / max(1.0, float(rounded.abs().max()))
        assert float(off.mean()) <= tolerance, what


def assert_analyses_work(path: Path, refused: tuple[str, ...] = ()) -> None:
    """Analyses and panels on the model at `path`: numbers with a small remainder, or one sentence for those in `refused`."""
    engine, ref = Engine(ModelStore()), ModelRef(f"file:{path}")
    c = engine.store.open(ref).opened.weights.config
    head = Head(c.n_layers - 1, c.n_heads - 1)
    asked = {
        "composition": CompositionParams(),
        "ov_table": OvTableParams(head, token=1, k=3),
        "qk_table": QkTableParams(head, token=1, k=3),
        "direct_attribution": DirectAttributionParams(),
        "path_expansion": PathExpansionParams(),
        "score_expansion": ScoreExpansionParams(head),
        "logit_lens": LogitLensParams(k=3),
        "ablation": AblationParams(),
    }
    tokens = tuple(int(t) for t in torch.randint(0, c.d_vocab, (9,), generator=torch.Generator().manual_seed(2)))
    if c.n_layers == 1:
        del asked["composition"]  # no pair of heads
    said = {}
    for name, params in asked.items():
        subject = Subject(ref, tokens, conventions=Conventions(dtype="float64"))
        try:
            _finite(name, engine.answer(Request.named(name, params, subject)).result)
        except Refused as reason:
            said[name] = str(reason)
    assert set(said) == set(refused), said
    assert all(len(reason.split()) > 5 for reason in said.values()), said
    state = State(ref).with_tokens(tokens).select(heads=(head,))
    for name in PANELS:
        try:
            figure = figure_of(engine, find_panel(name), state)
        except BadInput as reason:  # what the panel asks for was refused, or it says what to do first
            assert len(str(reason).split()) > 5, (name, reason)
        else:
            assert figure.marks or len(figure.why_empty.split()) > 5, name


def _finite(name: str, result: Any) -> None:
    """Something was computed, and a decomposition adds up to its whole."""
    numbers = [a for a in result.arrays().values() if a.dtype.kind == "f" and a.size]
    assert numbers, name
    assert any(np.isfinite(a).any() for a in numbers), name
    assert not any(np.isinf(a).any() for a in numbers), name
    if name in ("direct_attribution", "path_expansion", "score_expansion"):
        left = result.remainder
        assert left is not None, name
        assert left.size <= 1e-8 * max(1.0, left.of), (name, left)


def _close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float, what: str) -> None:
    scale = max(1.0, float(theirs.abs().max()))
    assert float((ours - theirs.float()).abs().max()) <= tolerance * scale, what
