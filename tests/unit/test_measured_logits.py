"""What is measured of one token: its logit, minus the mean over the vocabulary where W_U is centred, as its caption says."""

from __future__ import annotations

from pathlib import Path

import pytest

from circuitlab import api
from circuitlab.analysis.base import analyses
from circuitlab.model.forward import forward
from circuitlab.model.subject import Conventions, Target
from tests.models import CONFIGS, FULL, directory

TOKENS, TOKEN = (0, 5, 9, 5, 7, 5, 9), 7
SAID = ("minus its mean over the vocabulary", "minus their mean over the vocabulary")
OF_A_TARGET = ("ablation", "direct_attribution", "logit_lens", "neurons", "path_expansion", "token_attribution")


@pytest.mark.parametrize("config", ["gpt2", "both-norms-capped"])
@pytest.mark.parametrize("centre", [True, False])
@pytest.mark.parametrize("name", OF_A_TARGET)
def test_an_answer_about_one_token_says_whether_the_mean_is_taken_off(
    tmp_path: Path, name: str, centre: bool, config: str
) -> None:
    capped = bool(CONFIGS[config].logit_soft_cap)
    model = api.open(str(directory(tmp_path / "m", CONFIGS[config])))
    conventions = Conventions(centre=centre, dtype="float64")
    asked = {"target": Target((TOKEN,)), **({"effect": "target"} if name == "ablation" else {})}
    answer = model.compute(name, tokens=TOKENS, conventions=conventions, set=asked)
    said = " ".join(answer.result.conventions)
    assert sum(said.count(words) for words in SAID) == (name == "token_attribution" or (centre and not capped))


@pytest.mark.parametrize("name", OF_A_TARGET)
def test_an_answer_about_tokens_names_them(tmp_path: Path, name: str) -> None:
    model = api.open(str(directory(tmp_path / "m", FULL)))
    more = {"effect": "target"} if name == "ablation" else {}
    tokens, text = model.tokens("abcab"), model.compute("token_loss", text="ab").token_text
    assert text is not None

    def said(target: tuple[int, ...]) -> str:
        return " ".join(model.compute(name, tokens=tokens, set={"target": Target(target), **more}).result.conventions)

    assert f"‘{text(tokens[1])}’ − ‘{text(tokens[2])}’" in said(tokens[1:3])
    assert f"of ‘{text(tokens[3])}’" in said(tokens[3:4])


@pytest.mark.parametrize("centre", [True, False])
def test_what_neurons_add_up_to_is_what_their_caption_says(tmp_path: Path, centre: bool) -> None:
    model = api.open(str(directory(tmp_path / "m", CONFIGS["gpt2"])))
    answer = model.compute(
        "neurons", tokens=TOKENS, conventions=Conventions(centre=centre, dtype="float64"), set={"target": Target((TOKEN,))}
    )
    logits = forward(model.engine.store.open(model.ref).opened.weights, TOKENS).logits()[-1].double()
    wanted = logits[TOKEN] - (logits.mean() if centre else 0.0)
    assert answer.result.total == pytest.approx(float(wanted), abs=1e-4)  # type: ignore[attr-defined]


def test_logits_under_a_soft_cap_are_not_called_centred(tmp_path: Path) -> None:
    model = api.open(str(directory(tmp_path / "m", CONFIGS["both-norms-capped"])))
    assert "raw logits" in model.compute("predictions", tokens=TOKENS).result.conventions
    assert set(OF_A_TARGET) <= set(analyses())
