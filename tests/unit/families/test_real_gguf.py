"""A real model's GGUF file, as llama.cpp quantised it, against `transformers` reading the same file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab import api
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.model.folding import under
from circuitlab.model.forward import logits
from circuitlab.model.loading import open_model
from circuitlab.model.subject import Conventions
from tests.real_file import smollm2

TEXTS = (
    "Mr and Mrs Dursley of number four, Privet Drive, were proud to say",
    "  two  blanks\n\n\tand tabs\r\n",
    "1234 12 3.14159 2026",
    "été, naïve, œuvre ☕",
    "日本語と中文",
    "don't I'm we'll they've IT'S",
    "def f(x):\n    return x ** 2  # square",
    "a" * 40,
    " ",
    "Ελληνικά и русский, العربية",
)


def theirs(file: Path) -> Any:
    """The model as `transformers` reads it from the file, float32."""
    transformers = pytest.importorskip("transformers")
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = transformers.AutoConfig.from_pretrained(file.parent, gguf_file=file.name)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    tensors = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model)["tensors"]
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    assert set(missing) <= {"lm_head.weight"} and not unexpected
    model.tie_weights()
    return model


EXACT = Conventions(fold_norm=False, centre=False, dtype="float64")
# of the first eight tokens of TEXTS[0], by `transformers` in float64: the four first choices, the logit of id 100 at each place
IDS = (14086, 284, 10721, 422, 2786, 2292, 282, 1230)
CHOICES = {216: 24.11603, 1296: 20.6775, 582: 20.57215, 827: 20.36714}
OF_100 = (16.06489, 5.10234, 0.632, 16.06965, 12.43591, 7.8899, -9.07005, 11.71)


@pytest.mark.slow
@pytest.mark.gate
def test_a_real_file_opens_by_its_name() -> None:
    opened = open_model(smollm2())
    assert opened.weights.tokenizer is not None and opened.weights.tokenizer.encode(TEXTS[0])[:8] == IDS
    mine = logits(under(opened.weights, EXACT), torch.tensor([IDS]))[0]
    assert dict(zip(CHOICES, mine[-1].topk(4).values.tolist(), strict=True)) == pytest.approx(CHOICES, abs=1e-4)
    assert mine[-1].topk(4).indices.tolist() == list(CHOICES)
    assert mine[:, 100].tolist() == pytest.approx(OF_100, abs=1e-4)
    assert opened.weights.config.dequantised == "Q4_1 and Q8_0 (5.7 bits a weight)"


@pytest.mark.slow
def test_a_real_file_has_the_logits_of_transformers() -> None:
    file = smollm2()
    opened = open_model(file)
    assert opened.weights.tokenizer is not None
    ids = torch.tensor([opened.weights.tokenizer.encode(TEXTS[0])])
    with torch.no_grad():
        expected = theirs(file).double()(ids).logits
    assert torch.allclose(logits(under(opened.weights, EXACT), ids), expected, atol=1e-4, rtol=0)
    assert torch.allclose(logits(opened.weights, ids).double(), expected, atol=1e-3, rtol=0)  # float32, of logits up to 30


@pytest.mark.slow
def test_a_real_file_divides_text_as_transformers_does() -> None:
    transformers, file = pytest.importorskip("transformers"), smollm2()
    reference = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    tokenizer = open_model(file, keep="lazy").weights.tokenizer
    assert tokenizer is not None and not tokenizer.adds_bos
    for text in TEXTS:
        assert list(tokenizer.encode(text)) == reference(text, add_special_tokens=False).input_ids, text
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.slow
def test_a_real_file_shows_its_induction_head() -> None:
    model = api.open(str(smollm2()), use=Engine(ModelStore()))
    answer = model.compute("head_scores", samples=4)
    scores = answer.result.of("prefix_matching")
    best = np.unravel_index(scores.argmax(), scores.shape)
    assert best == (18, 6) and scores[best] == pytest.approx(0.93, abs=0.03)
    assert scores[17, 4] == pytest.approx(0.87, abs=0.05) and scores[16, 0] < 0.1
    assert answer.result.of("previous_token")[16, 0] == pytest.approx(0.90, abs=0.05)
    assert "weights dequantised from Q4_1 and Q8_0 (5.7 bits a weight)" in answer.result.conventions
