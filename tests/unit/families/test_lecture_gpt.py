"""The GPT of Karpathy's lecture: by its names and by a map, against the original modules' own forward pass; its characters."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from circuitlab.cli.parser import main
from circuitlab.errors import BadInput, BadModel, UsageError
from circuitlab.model.folding import under
from circuitlab.model.forward import forward
from circuitlab.model.importing.by_map import map_of
from circuitlab.model.loading import open_model
from circuitlab.model.subject import Conventions
from tests.lecture_model import SIZES, lecture

IDS = (3, 0, 7, 7, 2, 9)
STEPS: dict[str, dict[str, bool]] = {
    "published": {},
    "scaled by the stream": {"by_width": True},
    "before the projection": {"projected": False},
    "before the norms": {"normed": False},
    "before the MLP": {"normed": False, "mlp": False},
    "heads alone": {"projected": False, "normed": False, "mlp": False},
}


def _theirs(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([IDS]))[0]


@pytest.mark.parametrize("keep", ["resident", "mapped"])
@pytest.mark.parametrize("step", STEPS)
def test_the_lecture_opens_by_its_names(tmp_path: Path, step: str, keep: Any) -> None:
    model = lecture(**STEPS[step])
    torch.save({"model": model.state_dict(), "step": 5000}, tmp_path / "gpt.pt")
    assume = {"score_scale": "1/√d_model"} if "by_width" in STEPS[step] else {}
    opened = open_model(tmp_path / "gpt.pt", keep, assume)
    run = forward(opened.weights, IDS)
    assert torch.allclose(run.logits(), _theirs(model), atol=2e-5)
    folded = forward(under(opened.weights, Conventions()), IDS).log_probs()
    assert torch.allclose(folded, _theirs(model).log_softmax(-1), atol=2e-4)
    assert not any("unused" in note for note in opened.notes)
    listed = {a.name: a.value for a in opened.assumptions}
    assert listed["score_scale"] == assume.get("score_scale", "1/√d_head")
    assert ("activation" in listed) is STEPS[step].get("mlp", True)
    assert ("norm_eps" in listed) is STEPS[step].get("normed", True)
    c = opened.weights.config
    assert (c.n_layers, c.n_heads, c.d_model, c.n_ctx) == (2, 3, 12, 9)
    other = forward(open_model(tmp_path / "gpt.pt", assume={"score_scale": "1/√d_model"}).weights, IDS).logits()
    assert torch.allclose(other, _theirs(model), atol=2e-5) is bool(assume), "the two scales are two models"


def test_a_model_saved_whole_and_a_compiled_one_open_too(tmp_path: Path) -> None:
    model = lecture()
    torch.save(model, tmp_path / "whole.pt")
    torch.save({"model_state": {f"_orig_mod.{n}": x for n, x in model.state_dict().items()}}, tmp_path / "compiled.pt")
    for name in ("whole.pt", "compiled.pt"):
        assert torch.allclose(forward(open_model(tmp_path / name).weights, IDS).logits(), _theirs(model), atol=2e-5)


@pytest.mark.parametrize(
    "damage",
    {
        "one head less": lambda s: {n: x for n, x in s.items() if not n.startswith("blocks.1.sa.heads.2.")},
        "one head more": lambda s: {**s, "blocks.1.sa.heads.3.key.weight": torch.ones(4, 12)},
        "a layer of another kind": lambda s: {**s, "blocks.1.cross.key.weight": torch.ones(4, 12)},
        "a wrong shape": lambda s: {**s, "blocks.1.sa.heads.0.query.weight": torch.ones(5, 12)},
        "no unembedding": lambda s: {n: x for n, x in s.items() if "lm_head" not in n},
        "not finite": lambda s: {**s, "blocks.0.sa.proj.weight": torch.full((12, 12), float("nan"))},
        "three Linears": lambda s: {**s, "blocks.0.ffwd.net.4.weight": torch.ones(12, 12)},
        "a vector": lambda s: {**s, "token_embedding_table.weight": torch.ones(12)},
    }.items(),
    ids=lambda d: d[0],
)
def test_damaged_ones_are_refused(tmp_path: Path, damage: tuple[str, Any]) -> None:
    torch.save(damage[1](lecture().state_dict()), tmp_path / "gpt.pt")
    with pytest.raises(BadModel) as refused:
        open_model(tmp_path / "gpt.pt")
    assert refused.value.expected


# -- by a map ------------------------------------------------------------------------------------------------------------------

MAP = """
under = "training.net"
prefix = "lm."
ignore = [".tril"]
[config]
n_layers = 2
n_heads = 3
d_model = 12
d_head = 4
d_vocab = 11
n_ctx = 9
d_mlp = {mlp}
norm = "{norm}"
biases = [{biases}]
[tensors]
"embed.W_E" = "token_embedding_table.weight"
"embed.W_pos" = "position_embedding_table.weight"
"unembed.W_U" = {{ from = "lm_head.weight", transpose = true }}
"unembed.b_U" = "lm_head.bias"
W_Q = {{ from = "blocks.{{i}}.sa.heads.{{h}}.query.weight", transpose = true }}
W_K = {{ from = "blocks.{{i}}.sa.heads.{{h}}.key.weight", transpose = true }}
W_V = {{ from = "blocks.{{i}}.sa.heads.{{h}}.value.weight", transpose = true }}
"""
PLAIN = "W_O = { identity = true }\n"
PROJECTED = 'W_O = { from = "blocks.{i}.sa.proj.weight", transpose = true, heads = true }\nb_O = "blocks.{i}.sa.proj.bias"\n'
LINEAR = '"mlp.W_{0}" = {{ from = "{1}.weight", transpose = true }}\n"mlp.b_{0}" = "{1}.bias"\n'
MLP = LINEAR.format("in", "blocks.{i}.ffwd.net.0") + LINEAR.format("out", "blocks.{i}.ffwd.net.2")
NORMS = "".join(
    f'"{ours}.gain" = "{theirs}.weight"\n"{ours}.bias" = "{theirs}.bias"\n'
    for ours, theirs in (("attn_norm", "blocks.{i}.ln1"), ("mlp_norm", "blocks.{i}.ln2"), ("unembed.norm", "ln_f"))
)  # fmt: skip


def _imported(path: Path, step: str, extra: str = "", *flags: str) -> tuple[int, torch.nn.Module]:
    """The lecture under names that no family knows, imported by a map."""
    model, how = lecture(**STEPS[step]), STEPS[step]
    held = {f"lm.{n}": x for n, x in model.state_dict().items()}
    torch.save({"training": {"net": held, "where": path}, "ema": {"x": torch.ones(1)}}, path / "gpt.pt")
    mlp, normed, projected = how.get("mlp", True), how.get("normed", True), how.get("projected", True)
    biases = ['"unembed"', *(['"mlp"'] if mlp else []), *(['"o"'] if projected else [])]
    text = MAP.format(mlp=48 if mlp else 0, norm="layer" if normed else "none", biases=", ".join(biases))
    if mlp:
        text = text.replace('norm = "', 'activation = "relu"\nnorm = "')
    text += (PROJECTED if projected else PLAIN) + (MLP if mlp else "") + (NORMS if normed else "") + extra
    (path / "map.toml").write_text(text)
    return main(["import", str(path / "gpt.pt"), "--map", str(path / "map.toml"), "--output", str(path / "ours"), *flags]), model


@pytest.mark.parametrize("step", ["published", "before the projection", "heads alone"])
def test_heads_of_their_own_are_imported_by_a_map(tmp_path: Path, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    status, model = _imported(tmp_path, step)
    said = capsys.readouterr().out
    assert status == 0, said
    opened = open_model(tmp_path / "ours")
    assert torch.allclose(forward(opened.weights, IDS).logits(), _theirs(model), atol=2e-5)
    assumed = [line for line in said.splitlines() if line.startswith("assumed: ")]
    names = {line.split()[1] for line in assumed}
    assert {"score_scale", "positions", "n_kv_heads", "prepend_bos", "tied"} <= names
    assert not {"n_heads", "norm", "activation", "biases"} & names, "what the map states is not assumed"
    assert any("score_scale 0.5 (1/√d_head)" in line for line in assumed)
    assert "training.where" in said or "where (" in said
    (told,) = [n for n in opened.notes if n.startswith("assumed at its import")]
    assert "score_scale 0.5" in told and "positions learned" in told, "and it is told whenever the model is opened"
    assert any("W_O" in n and "square" in n for n in opened.notes) is (step == "published")
    (tmp_path / "ours" / "import.json").write_text('{"assumed": 5}')
    with pytest.raises(BadModel):
        open_model(tmp_path / "ours")


def test_check_says_what_shapes_do_not_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = _imported(tmp_path, "published", "", "--check")
    said = capsys.readouterr().out
    assert status == 0 and not (tmp_path / "ours").exists()
    (square,) = [line for line in said.splitlines() if "square" in line]
    assert square.endswith("transposed: W_O"), "the projection [12, 12] alone"
    status, _ = _imported(tmp_path, "published", "", "--check")
    text = (tmp_path / "map.toml").read_text().replace("blocks.{i}.sa.heads.{h}.query", "blocks.{i}.sa.heads.{h}.key")
    (tmp_path / "map.toml").write_text(text)
    assert main(["import", str(tmp_path / "gpt.pt"), "--map", str(tmp_path / "map.toml"), "--check"]) == 3
    said = capsys.readouterr().out
    assert said.count("a tensor of attention") == 6 and "lm.blocks.1.sa.heads.2.query.weight" in said


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"W_Q": {"from": "q.{h}", "heads": True}}, "one tensor per head"),
        ({"embed.W_E": "e.{h}"}, "one tensor per head"),
        ({"W_O": {"identity": True, "transpose": True}}, "identity"),
        ({"mlp.W_in": {"identity": True}}, "identity"),
        ({"W_O": {"identity": "yes"}}, "identity"),
    ],
)
def test_lines_about_heads_and_identities_that_cannot_be_read(line: dict[str, Any], words: str) -> None:
    config = {"n_layers": 1, "n_heads": 2, "d_model": 6, "d_head": 3, "d_vocab": 7, "n_ctx": 5}
    with pytest.raises(UsageError, match=words):
        map_of({"config": config, "tensors": line})


def test_an_identity_that_does_not_fit_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = _imported(tmp_path, "heads alone", "", "--check")
    assert status == 0
    text = (tmp_path / "map.toml").read_text().replace("d_head = 4", "d_head = 5")
    (tmp_path / "map.toml").write_text(text)
    assert main(["import", str(tmp_path / "gpt.pt"), "--map", str(tmp_path / "map.toml"), "--check"]) == 3
    assert "problem: layers.0.W_O" in capsys.readouterr().out


# -- characters ----------------------------------------------------------------------------------------------------------------

CHARS = "\n !abcdexyz"  # 11 of them
HELD: dict[str, dict[str, Any]] = {
    "stoi": {"stoi": {c: i for i, c in enumerate(CHARS)}, "itos": dict(enumerate(CHARS))},
    "itos": {"itos": dict(enumerate(CHARS))},
    "chars": {"chars": list(CHARS)},
    "nested": {"config": {"vocab": 11}, "data": {"chars": CHARS}},
}


@pytest.mark.parametrize("how", [*HELD, "meta.pkl"])
def test_characters_that_were_saved_are_the_tokenizer(tmp_path: Path, how: str) -> None:
    assert len(CHARS) == SIZES["vocab"]
    torch.save({"model": lecture().state_dict(), **HELD.get(how, {})}, tmp_path / "gpt.pt")
    if how == "meta.pkl":  # as nanoGPT's prepare.py writes it
        (tmp_path / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": 11, **HELD["stoi"]}))
    opened = open_model(tmp_path / "gpt.pt")
    tokenizer = opened.weights.tokenizer
    assert tokenizer is not None
    text = "ab a!\n\nxyz"
    assert tokenizer.encode(text) == tuple(CHARS.index(c) for c in text) and tokenizer.decode(tokenizer.encode(text)) == text
    with pytest.raises(BadInput, match="single characters") as refused:
        tokenizer.encode("abcÉ")
    assert "É" in refused.value.got
    (told,) = [a for a in opened.assumptions if a.name == "tokenizer"]
    assert told.value == "characters" and "11 characters" in told.why
    without = open_model(tmp_path / "gpt.pt", assume={"tokenizer": "none"})
    assert without.weights.tokenizer is None


@pytest.mark.parametrize(
    "held",
    [
        {"stoi": {"a": 0, "b": 2}},
        {"stoi": {"ab": 0, "c": 1}},
        {"itos": {0: "a", 1: "a"}},
        {"chars": 5},
        {"stoi": {"a": True}},
        {"itos": ["a", None]},
    ],
)
def test_vocabularies_that_are_none_are_not_taken(tmp_path: Path, held: dict[str, Any]) -> None:
    torch.save({"model": lecture().state_dict(), **held}, tmp_path / "gpt.pt")
    assert open_model(tmp_path / "gpt.pt").weights.tokenizer is None


class _Runs:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        import os

        return os.mkdir, (str(self.path),)


def test_a_hostile_meta_is_not_run_and_the_model_opens_without_it(tmp_path: Path) -> None:
    torch.save(lecture().state_dict(), tmp_path / "gpt.pt")
    for data in (pickle.dumps({"stoi": _Runs(tmp_path / "ran")}), b"\x80\x04junk", b"", pickle.dumps([1])):
        (tmp_path / "meta.pkl").write_bytes(data)
        opened = open_model(tmp_path / "gpt.pt")
        assert opened.weights.tokenizer is None and any("meta.pkl" in note for note in opened.notes)
    assert not (tmp_path / "ran").exists()


def test_an_imported_model_keeps_its_characters(tmp_path: Path) -> None:
    _imported(tmp_path, "published", "", "--check")
    (tmp_path / "meta.pkl").write_bytes(pickle.dumps(HELD["stoi"] | {"stoi": {c: i for i, c in enumerate("0123456789-")}}))
    assert (
        main(["import", str(tmp_path / "gpt.pt"), "--map", str(tmp_path / "map.toml"), "--output", str(tmp_path / "ours")]) == 0
    )
    tokenizer = open_model(tmp_path / "ours").weights.tokenizer
    assert tokenizer is not None and tokenizer.encode("10-") == (1, 0, 10), "also where there is no letter"
    with pytest.raises(BadInput):
        tokenizer.encode("a")
