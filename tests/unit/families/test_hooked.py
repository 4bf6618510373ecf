"""TransformerLens state dicts against what the library computed with them; inferred ones, older orders of axes, refusals."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

import circuitlab.api as lab
from circuitlab.analysis.base import analyses, find_analysis
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadModel, CircuitLabError, UsageError
from circuitlab.model.folding import under
from circuitlab.model.forward import forward
from circuitlab.model.loading import Opened, open_model
from circuitlab.model.loading.assumptions import YOUR_CHOICE, pairs
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of, parse_session
from tests.fuzz.corpus import CORPUS
from tests.hooked_models import held_in, letters, own_form, plain_values
from tests.reference.make_hooked import FOLDER, MODELS, TOKENS

ACTIVATIONS = np.load(FOLDER / "activations.npz")


def _agrees(opened: Opened, name: str, tolerance: float = 2e-5) -> None:
    run = forward(opened.weights, TOKENS)
    n = opened.weights.config.n_layers
    ours = {
        "logits": run.logits(),
        "patterns": torch.cat([run.get("pattern", i) for i in range(n)]),
        "streams": torch.stack([run.get("resid_pre", i) for i in range(n)]),
    }
    for what, value in ours.items():
        theirs = ACTIVATIONS[f"{name} {what}"]
        assert np.abs(value.numpy() - theirs).max() <= tolerance * max(1.0, np.abs(theirs).max()), what
    folded = forward(under(opened.weights, Conventions()), TOKENS).log_probs()
    theirs = torch.tensor(ACTIVATIONS[f"{name} logits"]).log_softmax(-1)
    assert float((folded - theirs).abs().max()) < 1e-4


@pytest.mark.parametrize("name", list(MODELS)[:3])
def test_a_configuration_saved_as_an_object_is_read(tmp_path: Path, name: str) -> None:
    held = held_in(name)
    torch.save({"model": held["model"], "cfg": argparse.Namespace(**held["cfg"], where=Path("x"))}, tmp_path / "model.pt")
    opened = open_model(tmp_path / "model.pt")
    _agrees(opened, name)
    assert [a.name for a in opened.assumptions] == ["tokenizer"]


@pytest.mark.parametrize("keep", ["resident", "mapped"])
@pytest.mark.parametrize("name", MODELS)
def test_saved_models_compute_what_the_library_computes(name: str, keep: Any) -> None:
    opened = open_model(FOLDER / f"{name}.pt", keep)
    _agrees(opened, name)
    assert [a.name for a in opened.assumptions] == ["tokenizer"]
    assert any(note.startswith("score scale") for note in opened.notes)


@pytest.mark.parametrize("name", MODELS)
def test_configuration_as_json_beside_safetensors(tmp_path: Path, name: str) -> None:
    held = held_in(name)
    save_file({n: v.contiguous() for n, v in held["model"].items()}, tmp_path / "weights.safetensors")
    (tmp_path / "weights.json").write_text(json.dumps(plain_values(held["cfg"])))
    opened = open_model(tmp_path / "weights.safetensors")
    _agrees(opened, name)
    assert opened.weights.config.prepend_bos is (name != "solu")


# -- the author's own models: config.json in older words, and model_final.pth ----------------------------------------------


@pytest.mark.parametrize("name", ["shortformer", "attention", "gelu", "solu"])
def test_the_authors_own_models_compute_what_the_library_computes(tmp_path: Path, name: str) -> None:
    opened = open_model(own_form(tmp_path / "m", name))
    _agrees(opened, name)
    config = opened.weights.config
    assert config.prepend_bos, "as the library does where nothing is said"
    assert config.positions == ("shortformer" if name == "shortformer" else "learned")
    assert not opened.assumptions or [a.name for a in opened.assumptions] == ["tokenizer"]


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("gelu", {"normalization": None}), ("shortformer", {"shortformer_pos": None}), ("gelu", {"ln_eps": 0.5}),
        ("attention", {"use_attn_scale": None}), ("gelu", {"act_fn": "relu"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)  # fmt: skip
def test_each_word_of_the_author_decides(tmp_path: Path, name: str, changes: dict[str, Any]) -> None:
    """Another value gives other numbers, or a refusal: none is passed over."""
    try:
        opened = open_model(own_form(tmp_path / "m", name, **changes))
    except BadModel:
        return
    theirs = ACTIVATIONS[f"{name} logits"]
    assert np.abs(forward(opened.weights, TOKENS).logits().numpy() - theirs).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("gelu", {"normalization": "LN", "normalization_type": "RMS"}, "two things of normalization_type"),
        ("gelu", {"eps": 1e-3}, "two things of eps"),
        ("gelu", {"positional_embedding_type": "shortformer"}, "two things of positional_embedding_type"),
        ("gelu", {"shortformer_pos": "no"}, "shortformer_pos"),
        ("gelu", {"normalization": "BN"}, "norm is not known"),
        ("gelu", {"attn_only": True}, "attn_only contradicts"),
        ("attention", {"attn_only": False}, "attn_only contradicts"),
        ("gelu", {"act_fn": "solu"}, "activation is not known"),
        ("gelu", {"neuron_temp": 2.0}, "neuron_temp is not supported"),
    ],
)
def test_words_of_the_author_that_do_not_agree_are_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(BadModel, match=words):
        open_model(own_form(tmp_path / "m", name, **changes))


def test_the_final_weights_are_opened_beside_those_that_training_began_with(tmp_path: Path) -> None:
    folder = own_form(tmp_path / "m", "gelu")
    torch.save({name: torch.zeros_like(value) for name, value in held_in("gelu")["model"].items()}, folder / "model_init.pth")
    _agrees(open_model(folder), "gelu")


def test_the_tokenizer_that_is_named_is_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    folder = own_form(tmp_path / "m", "gelu", tokenizer_name="somebody/letters")
    opened = open_model(folder)
    assert opened.weights.tokenizer is None
    assert any("somebody/letters, which is neither beside the weights nor in the hub's cache" in note for note in opened.notes)
    place = tmp_path / "cache" / "models--somebody--letters" / "snapshots" / "main"
    place.mkdir(parents=True)
    letters(place)
    opened = open_model(folder)
    assert opened.weights.tokenizer is not None and opened.weights.tokenizer.bos == 16
    assert opened.weights.tokenizer.encode("cab", opened.weights.config.prepend_bos)[0] == 16
    assert any("somebody/letters of the hub" in note for note in opened.notes)


def _inferred(path: Path, name: str, **assume: str) -> Opened:
    torch.save(held_in(name)["model"], path / "model.pt")
    return open_model(path / "model.pt", assume=assume)


@pytest.mark.parametrize(
    ("name", "said", "assumed"),
    [
        ("shortformer", {"positions": "shortformer"}, {"positions": "learned", "norm": "LNPre", "score_scale": "1/√d_head"}),
        ("attention", {"score_scale": "1"}, {"norm": "none", "mask": "causal"}),
        ("gelu", {"activation": "gelu"}, {"activation": "gelu_new", "norm": "LN", "mlp_reads": "after attention"}),
        ("solu", {"activation": "solu_ln", "prepend_bos": "no"}, {"norm": "LNPre", "activation": "gelu_new"}),
        ("parallel", {"activation": "gelu", "mlp_reads": "beside attention"}, {"positions": "rotary"}),
        ("grouped", {"norm_eps": "1e-3"}, {"norm": "RMS", "activation": "silu", "positions": "rotary"}),
    ],
)
def test_inferred_models_list_what_they_assume(tmp_path: Path, name: str, said: dict[str, str], assumed: dict[str, str]) -> None:
    opened = _inferred(tmp_path, name)
    listed = {a.name: a for a in opened.assumptions}
    assert assumed.items() <= {n: a.value for n, a in listed.items()}.items()
    assert all(a.why and (not a.choices or a.value in a.choices or a.name == "score_scale") for a in listed.values())
    corrected = _inferred(tmp_path, name, **said)
    assert {a.name for a in corrected.assumptions if a.why.startswith(YOUR_CHOICE)} == set(said)
    _agrees(corrected, name)


def test_rotary_is_read_from_the_stored_tables(tmp_path: Path) -> None:
    rotary = _inferred(tmp_path, "grouped").weights.config.rotary
    assert rotary is not None and (rotary.base, rotary.pairs, rotary.dims) == (500.0, "half", 0)
    rotary = _inferred(tmp_path, "parallel").weights.config.rotary
    assert rotary is not None and (rotary.pairs, rotary.dims) == ("interleaved", 2)


@pytest.mark.parametrize(
    ("assume", "words"),
    [
        ({"position": "learned"}, "no assumption of that name"),
        ({"activation": "tanh"}, "activation cannot be read"),
        ({"score_scale": "0"}, "score scale"),
        ({"norm_eps": "small"}, "norm_eps"),
        ({"mask": "none"}, "causally"),
        ({"tokenizer": "/nowhere/tokenizer.json"}, "does not exist"),
    ],
)
def test_what_cannot_be_assumed_is_refused(tmp_path: Path, assume: dict[str, str], words: str) -> None:
    with pytest.raises(BadModel, match=words):
        _inferred(tmp_path, "gelu", **assume)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"positional_embedding_type": "relative_positional_bias"}, "positions"),
        ({"attention_dir": "bidirectional"}, "causally"),
        ({"final_rms": True}, "final norm"),
        ({"num_experts": 4}, "mixture of experts"),
        ({"normalization_type": "BN"}, "norm is not known"),
        ({"normalization_type": ["LN"]}, "normalization_type"),
        ({"positional_embedding_type": {}}, "positional_embedding_type"),
        ({"act_fn": []}, "act_fn"),
        ({"use_local_attn": True, "window_size": 3, "attn_types": [["local"], "global"]}, "attn_types"),
        ({"act_fn": "xielu"}, "activation"),
        ({"act_fn": None}, "activation"),
        ({"d_model": 13}, "d_model contradicts"),
        ({"n_heads": 4}, "n_heads"),
        ({"n_ctx": 12}, "W_pos"),
        ({"use_local_attn": True, "window_size": 3}, "attn_types"),
    ],
)
def test_configurations_that_are_not_known_are_refused_in_words(tmp_path: Path, changes: dict[str, Any], words: str) -> None:
    held = held_in("gelu")
    torch.save({"state_dict": held["model"], "config": {**held["cfg"], **changes}}, tmp_path / "model.pt")
    with pytest.raises(BadModel, match=words):
        open_model(tmp_path / "model.pt")


# -- older orders of the axes ------------------------------------------------------------------------------------------------


def _toy(rng: torch.Generator, d: int, heads: int, k: int, vocab: int, mlp: int) -> dict[str, Tensor]:
    """Today's names and order, no norms, MLP with biases."""
    shapes = {"embed.W_E": (vocab, d), "pos_embed.W_pos": (9, d), "unembed.W_U": (d, vocab - 1)}
    for i in range(2):
        shapes |= {f"blocks.{i}.attn.W_{n}": (heads, d, k) for n in "QKV"} | {f"blocks.{i}.attn.W_O": (heads, k, d)}
        shapes |= {f"blocks.{i}.mlp.W_in": (d, mlp), f"blocks.{i}.mlp.W_out": (mlp, d)}
        shapes |= {f"blocks.{i}.mlp.b_in": (mlp,), f"blocks.{i}.mlp.b_out": (d,)}
    return {n: torch.randn(s, generator=rng) * 0.4 for n, s in shapes.items()}


def _older(tensors: dict[str, Tensor], flat_output: bool) -> dict[str, Tensor]:
    """As code of 2022 kept them: every matrix but W_pos and W_U as [out, in]; W_O [d_model, head · d_head] if asked."""
    made = {}
    for name, x in tensors.items():
        part = name.rpartition(".")[2]
        if part == "W_O" and flat_output:
            made[name] = x.flatten(0, 1).T.contiguous()
        elif part in ("W_E", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out"):
            made[name] = x.transpose(-1, -2).contiguous()
        else:
            made[name] = x
    return made


IDS = (1, 4, 0, 6, 6, 2)


@pytest.mark.parametrize("flat_output", [False, True])
def test_older_orders_are_recognised_by_their_shapes(tmp_path: Path, flat_output: bool) -> None:
    tensors = _toy(torch.Generator().manual_seed(3), 10, 3, 4, 7, 16)
    torch.save(tensors, tmp_path / "today.pt")
    torch.save(_older(tensors, flat_output), tmp_path / "older.pt")
    today, older = open_model(tmp_path / "today.pt"), open_model(tmp_path / "older.pt")
    assert torch.allclose(forward(today.weights, IDS).logits(), forward(older.weights, IDS).logits(), atol=1e-5)
    assert any("transposed" in note and "W_Q" in note for note in older.notes)
    assert today.weights.config.d_vocab_out == 6


def test_square_weights_among_transposed_ones_are_asked_about(tmp_path: Path) -> None:
    tensors = _toy(torch.Generator().manual_seed(4), 12, 3, 4, 7, 16)  # W_O flat is [12, 12]
    torch.save(tensors, tmp_path / "today.pt")
    torch.save(_older(tensors, True), tmp_path / "older.pt")
    with pytest.raises(BadModel, match="shape does not say") as caught:
        open_model(tmp_path / "older.pt")
    assert "--map" in caught.value.remedy and "axes=transposed" in caught.value.remedy
    older = open_model(tmp_path / "older.pt", assume={"axes": "transposed"})
    today = open_model(tmp_path / "today.pt")
    assert torch.allclose(forward(today.weights, IDS).logits(), forward(older.weights, IDS).logits(), atol=1e-5)


def test_one_head_as_wide_as_the_stream_is_an_assumption(tmp_path: Path) -> None:
    torch.save(_toy(torch.Generator().manual_seed(5), 6, 1, 6, 7, 16), tmp_path / "model.pt")
    result = {a.name: a.value for a in open_model(tmp_path / "model.pt").assumptions}
    assert result["axes"] == "today's"


def test_flat_heads_must_be_counted(tmp_path: Path) -> None:
    tensors = _toy(torch.Generator().manual_seed(6), 10, 3, 4, 7, 16)
    flat = {n: x.permute(1, 0, 2).flatten(1).contiguous() if n[-3:] in ("W_Q", "W_K", "W_V") else x for n, x in tensors.items()}
    flat = {n: x.flatten(0, 1) if n.endswith("W_O") else x for n, x in flat.items()}
    torch.save(flat, tmp_path / "flat.pt")
    torch.save(tensors, tmp_path / "today.pt")
    with pytest.raises(BadModel, match="do not say what n_heads is"):
        open_model(tmp_path / "flat.pt")
    result = open_model(tmp_path / "flat.pt", assume={"n_heads": "3"})
    today = open_model(tmp_path / "today.pt")
    assert torch.allclose(forward(today.weights, IDS).logits(), forward(result.weights, IDS).logits(), atol=1e-5)


# -- what is assumed belongs to the model ------------------------------------------------------------------------------------


def test_answers_of_other_assumptions_are_kept_apart(tmp_path: Path) -> None:
    torch.save(held_in("shortformer")["model"], tmp_path / "model.pt")
    engine = Engine(ModelStore())
    ref = ModelRef(f"file:{tmp_path / 'model.pt'}")
    other = replace(ref, assume=(("positions", "shortformer"),))
    loss = lambda r: engine.answer(Request.named("token_loss", _params("token_loss"), Subject(r, TOKENS))).result.arrays()["loss"]
    assert np.nanmax(np.abs(loss(ref) - loss(other))) > 1e-3
    assert np.array_equal(loss(ref), loss(ref), equal_nan=True)


def test_tokens_that_cannot_be_predicted_have_no_loss() -> None:
    """A model of five outputs reads seventeen tokens: every analysis answers or says why not."""
    engine = Engine(ModelStore())
    subject = Subject(ModelRef(f"file:{FOLDER / 'attention.pt'}"), TOKENS)
    answer = engine.answer(Request.named("token_loss", _params("token_loss"), subject))
    loss = answer.result.arrays()["loss"]
    logits = torch.tensor(ACTIVATIONS["attention logits"])
    for i, token in enumerate(TOKENS[1:]):
        wanted = float(-logits[i].log_softmax(-1)[token]) if token < 5 else np.nan
        assert np.isclose(loss[i + 1], wanted, atol=1e-4, equal_nan=True)
    assert f"{sum(t >= 5 for t in TOKENS[1:])} tokens that the model cannot predict have no loss" in answer.result.conventions
    run = forward(open_model(FOLDER / "attention.pt").weights, TOKENS)
    assert np.allclose(run.losses().numpy(), loss[1:], atol=1e-4, equal_nan=True)
    for name in analyses():
        try:
            engine.answer(Request.named(name, _params(name), subject))
        except CircuitLabError as error:  # refused, or over the budget, in words
            assert error.what, name


def _params(name: str) -> Any:
    return find_analysis(name).params()


def test_a_snippet_opens_the_model_under_the_same_assumptions(tmp_path: Path) -> None:
    torch.save(held_in("shortformer")["model"], tmp_path / "model.pt")
    model = lab.open(str(tmp_path / "model.pt"), assume={"positions": "shortformer"})
    request = Request.named("token_loss", _params("token_loss"), model.subject(tokens=TOKENS))
    space: dict[str, Any] = {}
    exec(lab.snippet(request).replace("print(", "str("), space)
    assert space["model"].ref == model.ref and space["answer"].request == request
    assert space["model"].config.positions == "shortformer"


def test_assumptions_are_kept_in_sessions() -> None:
    ref = ModelRef("file:/a/b.pt", assume=(("norm", "LNPre"), ("positions", "shortformer")))
    session = Session({"b": ModelEntry(ref)})
    assert parse_session(bytes_of(session, Path("/a")), Path("/c")).refs() == {"b": replace(ref, source="file:/c/b.pt")}


def test_the_command_line_lists_and_takes_assumptions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save(held_in("shortformer")["model"], tmp_path / "model.pt")
    path = str(tmp_path / "model.pt")
    assert main(["info", path]) == 0
    assert "--assume positions=shortformer" in capsys.readouterr().out
    assert main(["info", path, "--json", "--assume", "positions=shortformer", "tokenizer=attn-only-2l"]) == 0
    about = json.loads(capsys.readouterr().out)
    assert about["config"]["positions"] == "shortformer" and about["tokenizer"]["n_tokens"] > 17
    assert main(["compute", "token_loss", path, "--tokens", "1,2,3", "--assume", "positions"]) == 2
    assert "NAME=VALUE" in capsys.readouterr().err


def test_words_of_assumptions() -> None:
    assert pairs(["b=1", " a = x=y "]) == (("a", "x=y"), ("b", "1"))
    with pytest.raises(UsageError):
        pairs(["=1"])


# -- blocks by other names, none at all, and what is left over -----------------------------------------------------------------


@pytest.mark.parametrize("inner", ["attn.", ""])
@pytest.mark.parametrize("called", ["attn_blocks", "model.attention_layers"])
def test_blocks_may_go_by_another_name(tmp_path: Path, called: str, inner: str) -> None:
    tensors = _toy(torch.Generator().manual_seed(3), 10, 3, 4, 7, 16)
    torch.save(tensors, tmp_path / "today.pt")
    other = {n.replace("blocks.", f"{called}.").replace(".attn.", f".{inner}"): x for n, x in tensors.items()}
    assert set(other).isdisjoint({n for n in tensors if "attn" in n})
    torch.save(other, tmp_path / "other.pt")
    today, opened = open_model(tmp_path / "today.pt"), open_model(tmp_path / "other.pt", "mapped")
    assert torch.equal(forward(today.weights, IDS).logits(), forward(opened.weights, IDS).logits())
    assert any(called in note for note in opened.notes)


@pytest.mark.parametrize("stated", [True, False])
def test_a_model_without_layers_opens(tmp_path: Path, stated: bool) -> None:
    tensors = _toy(torch.Generator().manual_seed(3), 10, 3, 4, 7, 16)
    ends = {n: x for n, x in tensors.items() if not n.startswith("blocks")}
    config = {"n_layers": 0, "d_model": 10, "n_heads": 3, "d_head": 4, "n_ctx": 9, "d_vocab": 7, "attn_only": True}
    torch.save({"state_dict": ends, "config": {**config, "normalization_type": None}} if stated else ends, tmp_path / "zero.pt")
    opened = open_model(tmp_path / "zero.pt")
    W_E, W_pos, W_U = (tensors[n].double() for n in ("embed.W_E", "pos_embed.W_pos", "unembed.W_U"))
    wanted = (W_E[list(IDS)] + W_pos[: len(IDS)]) @ W_U
    assert torch.allclose(forward(opened.weights, IDS).logits().double(), wanted, atol=1e-5)
    assert opened.weights.config.n_layers == 0
    assert not {"mask", "score_scale"} & {a.name for a in opened.assumptions}, "nothing is assumed of attention that is not there"


_RENAMED = {
    "one block elsewhere": lambda n: n.replace("blocks.1", "others.0"),
    "one head elsewhere": lambda n: n.replace("blocks.1.attn.W_Q", "blocks.1.attn.W_Q.0"),
    "names of nobody": lambda n: n if "embed" in n else n.replace("blocks.", "b").replace("attn.W_", "").lower(),
    "queries outside": lambda n: n.replace("blocks.0.attn.W_Q", "blocks.0.W_Q"),
}


@pytest.mark.parametrize("how", _RENAMED)
def test_attention_that_no_layout_uses_is_never_passed_over(tmp_path: Path, how: str) -> None:
    tensors = _toy(torch.Generator().manual_seed(3), 10, 3, 4, 7, 16)
    torch.save({_RENAMED[how](n): x for n, x in tensors.items()}, tmp_path / "model.pt")
    with pytest.raises(BadModel) as refused:
        open_model(tmp_path / "model.pt")
    assert refused.value.expected and refused.value.got
    assert main(["info", str(tmp_path / "model.pt")]) == 3


@pytest.mark.parametrize("extra", ["blocks.0.attn.W_Z", "encoder.layer.0.attention.self.query.weight", "h.0.wq", "0.q_proj"])
def test_more_attention_than_the_model_has_is_refused(tmp_path: Path, extra: str) -> None:
    held = held_in("attention")
    torch.save({"state_dict": {**held["model"], extra: torch.ones(3, 4)}, "config": held["cfg"]}, tmp_path / "more.pt")
    with pytest.raises(BadModel, match="attention") as refused:
        open_model(tmp_path / "more.pt")
    assert extra in refused.value.got and "--map" in refused.value.remedy


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_a_bias_that_the_configuration_does_not_know_is_refused_unless_it_is_zero(tmp_path: Path, value: float) -> None:
    path = CORPUS["llama-bf16"](tmp_path / "m")
    tensors = load_file(path / "model.safetensors")
    more = {
        "model.layers.0.self_attn.q_proj.bias": torch.full((8,), value),
        "model.layers.0.self_attn.causal_mask": torch.ones(3, 3),
    }
    save_file({**tensors, **more}, path / "model.safetensors")
    if value:
        with pytest.raises(BadModel, match="attention") as refused:
            open_model(path)
        assert "1 left over" in refused.value.got
    else:
        assert any("unused tensors (2)" in note for note in open_model(path).notes)
