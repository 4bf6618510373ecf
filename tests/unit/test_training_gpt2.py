"""A trained model as a Hugging Face GPT-2 directory: `transformers` and we open it, and compute the same."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.disk.paths import model_dir
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.forward import forward, logits
from circuitlab.model.loading import open_model
from circuitlab.model.trainable import TrainableWeights
from circuitlab.training.bpe import train_tokenizer
from circuitlab.training.card import export
from circuitlab.training.corpus import Source, Stream
from circuitlab.training.huggingface_export import gpt2_tensors, save_gpt2, why_not
from circuitlab.training.loop import Trainer
from circuitlab.training.metrics import repeated_random
from circuitlab.training.recipe import Export, Recipe
from circuitlab.training.recipe_file import read_recipe
from tests.full_disk import no_room_for

TEXT = "The grey heron stood in the shallow water, naïve and still; def f(x): return x + 1\n"
GPT2 = """
seed = 5
vocab = 300
[model]
n_layers = 2
n_heads = 3
d_model = 24
d_head = 8
d_mlp = 40
positions = "learned"
norm = "layer"
activation = "gelu_new"
biases = ["q", "k", "v", "o", "mlp"]
tied = true
[init]
W_E = 0.1
[[stages]]
start = 0
context = 24
batch = 4
[optimiser]
steps = 6
warmup = 2
[checkpoints]
first = 2
[export]
format = "gpt2"
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    (tmp_path / "mine.toml").write_text(GPT2)
    return read_recipe(str(tmp_path / "mine.toml"))


@pytest.fixture
def written(recipe: Recipe, tmp_path: Path) -> Any:
    """(model folder, trainer) of a short run whose biases and gains are away from where they began."""
    (tmp_path / "a.txt").write_text(TEXT * 60 + "".join(chr(i) for i in range(0xC0, 0x180)) * 9, encoding="utf-8")
    tokenizer = train_tokenizer((Source("a", (tmp_path / "a.txt",), 1.0),), recipe.vocab, 10**6)
    rng = np.random.default_rng(0)
    streams = (Stream("a", 1.0, *(rng.integers(1, 300, n).astype(np.uint16) for n in (4000, 200))),)
    trainer = Trainer(recipe, streams, tmp_path / "run")
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for value in trainer.weights.tensors.values():
            value.add_(0.3 * torch.randn(value.shape, generator=generator))
    trainer.train(lambda line: None)
    export(trainer, tokenizer, tmp_path / "model", "circuitlab train mine --text a.txt --out DIR")
    return tmp_path / "model", trainer


def _peer(path: Path) -> Any:
    from transformers import AutoModelForCausalLM

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoModelForCausalLM.from_pretrained(path).eval()


def test_transformers_computes_our_logits(written: Any) -> None:
    path, trainer = written
    peer = _peer(path)
    ids = torch.randint(0, 300, (3, 24), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        theirs = peer(ids).logits
        trained = logits(trainer.weights, ids)
        ours = logits(open_model(path).weights, ids)
    assert float(theirs.std()) > 0.5
    torch.testing.assert_close(trained, theirs, atol=1e-4, rtol=0)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=0)
    assert peer.lm_head.weight.data_ptr() == peer.transformer.wte.weight.data_ptr()
    assert sum(p.numel() for p in peer.parameters()) == trainer.config.n_parameters()
    assert peer.config.eos_token_id is None and peer.config.bos_token_id == 0


def test_transformers_reads_our_tokens_bos_in_front(written: Any) -> None:
    from transformers import AutoTokenizer

    path, _ = written
    theirs, ours = AutoTokenizer.from_pretrained(path), open_model(path).weights
    text = TEXT + "\n\n  x = 'ß' + \"1234\"\t<|bos|> é"
    tokenizer = ours.tokenizer
    assert tokenizer is not None
    assert (tokenizer.bos, tokenizer.adds_bos, ours.config.prepend_bos) == (0, True, True)
    plain = TEXT + "\n\n  x = 'ß' + \"1234\"\t é"
    assert tuple(theirs(plain)["input_ids"]) == tokenizer.encode(plain, bos=True)
    assert tokenizer.encode(text)[0] != 0  # what looks like BOS in a text is text to us
    assert theirs.decode(theirs(plain)["input_ids"], skip_special_tokens=True) == plain
    assert theirs.bos_token_id == 0


def test_the_checkpoints_open_as_a_series(written: Any, recipe: Recipe) -> None:
    path = written[0]
    opened = open_model(path)
    assert opened.steps == recipe.checkpoints.steps(6) == (0, 2, 4, 6)
    last = open_model(path, checkpoint=-1).weights
    first = open_model(path, checkpoint=0).weights
    ids = torch.tensor([[0, 5, 9, 7]])
    with torch.inference_mode():
        torch.testing.assert_close(logits(last, ids), logits(opened.weights, ids), atol=2e-2, rtol=0)
        assert float((logits(first, ids) - logits(opened.weights, ids)).abs().max()) > 5e-2
    assert "Hugging Face GPT-2" in opened.card
    assert json.loads((path / "metrics.json").read_text())["step"] == 6


def test_a_prompt_runs_through_the_engine_of_one_prompt(written: Any) -> None:
    path = written[0]
    run = forward(open_model(path).weights, (0, 4, 8))
    assert run.final is not None and run.final.shape == (3, 24)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"positions": "shortformer"}, "positions shortformer"),
        ({"norm": "rms"}, "norm rms"),
        ({"biases": ["q", "k", "v", "o"]}, "biases"),
        ({"d_mlp": 0, "biases": ["q", "k", "v", "o"]}, "no MLP"),
        ({"gated": True}, "gated"),
        ({"d_head": 4}, "do not make up"),
        ({"n_kv_heads": 1}, "fewer key-value heads"),
        ({"logit_soft_cap": 5.0}, "soft caps"),
        ({"score_scale": 0.5}, "score_scale"),
    ],
)
def test_what_is_no_gpt2_is_refused(recipe: Recipe, tmp_path: Path, changed: dict[str, Any], said: str) -> None:
    other = replace(recipe, model={**recipe.model, **changed})
    assert said in why_not(other.config())
    assert why_not(recipe.config()) == ""
    from circuitlab.training.recipe_checks import checked

    with pytest.raises(BadInput, match="not a GPT-2"):
        checked(other, "mine.toml")
    assert checked(replace(other, export=Export()), "mine.toml").export.format == "circuitlab"


def test_untied_unembeddings_are_written_too(recipe: Recipe, tmp_path: Path, written: Any) -> None:
    from circuitlab.training.loop import initial_tensors

    loose = replace(recipe, model={**recipe.model, "tied": False})
    made = {n: v + 0.1 * torch.randn(v.shape) for n, v in initial_tensors(loose, loose.config()).items()}
    assert "lm_head.weight" in gpt2_tensors(loose.config(), made)
    tokenizer = open_model(written[0]).weights.tokenizer
    assert tokenizer is not None
    save_gpt2(tmp_path / "loose", loose.config(), made, tokenizer)
    ids = torch.tensor([[0, 5, 9, 7]])
    with torch.no_grad():
        ours = logits(TrainableWeights(loose.config(), made), ids)
        torch.testing.assert_close(_peer(tmp_path / "loose")(ids).logits, ours, atol=1e-4, rtol=0)


def test_the_shipped_model_does_in_transformers_what_its_card_says() -> None:
    from transformers import AutoTokenizer

    path = model_dir("gpt-mini")
    opened, peer = open_model(path), _peer(path)
    said = json.loads((path / "metrics.json").read_text(encoding="utf-8"))
    tokens = repeated_random(4096, 256)
    with torch.no_grad():
        theirs = peer(tokens).logits
        torch.testing.assert_close(logits(opened.weights, tokens), theirs, atol=1e-3, rtol=0)
        each = torch.nn.functional.cross_entropy(theirs[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    by_index = each.view(len(tokens), -1).mean(0)
    assert float(by_index[:50].mean()) == pytest.approx(said["rep1"], abs=1e-2)
    assert float(by_index[51:].mean()) == pytest.approx(said["rep2"], abs=1e-2)
    assert said["rep2"] < 0.2 and max(said["heads"]["prefix_matching"][1]) > 0.9
    tokenizer = opened.weights.tokenizer
    assert tokenizer is not None
    assert tuple(AutoTokenizer.from_pretrained(path)(TEXT)["input_ids"]) == tokenizer.encode(TEXT, bos=True)
    assert len(opened.steps) >= 6 and f"{said['rep2']:.2f} nats" in opened.card


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "card.md"])
def test_a_full_disk_leaves_the_directory_of_before(written: Any, tmp_path: Path, name: str) -> None:
    path, trainer = written
    before = (path / name).read_bytes()
    tokenizer = open_model(path).weights.tokenizer
    assert tokenizer is not None
    with no_room_for(path / f"{name}.new"), pytest.raises(BadMachine, match="disk is full"):
        export(trainer, tokenizer, path, "circuitlab train mine")
    assert (path / name).read_bytes() == before
    (path / f"{name}.new").unlink(missing_ok=True)
    export(trainer, tokenizer, path, "circuitlab train mine")
    assert "circuitlab train mine`" in open_model(path).card
