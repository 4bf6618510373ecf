"""The equations of the constructed model: all hold in the model built by them, and a broken matrix breaks those it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from circuitlab import api
from circuitlab.analysis.checks.construction import ConstructionParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Refused
from circuitlab.figures.marks import Hit, Prose, Rows
from circuitlab.figures.panels.laboratory.equations import EQUATIONS, HOLDS, LIMITS
from circuitlab.figures.panels.laboratory.panel import pick
from circuitlab.figures.panels.laboratory.parameters import LaboratoryView
from circuitlab.model.constructed import RopeInduction, tensors
from circuitlab.model.constructed.matrices import configuration
from circuitlab.model.saving import save_directory
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.state.state import State
from tests.models import CONFIGS, directory

TOKENS = (0, 1, 2, 3, 4, 1, 2, 5, 3, 4)
DOUBLE = Conventions(centre=False, dtype="float64")


def checked(source: str, tokens: tuple[int, ...] = TOKENS) -> dict[str, tuple[float, float]]:
    subject = Subject(ModelRef(source), tokens, (), DOUBLE)
    result = Engine(ModelStore()).answer(Request.named("construction", ConstructionParams(), subject)).result
    return {n: (d, s) for n, d, s in zip(result.names, result.difference.tolist(), result.size.tolist(), strict=True)}


def failing(rows: dict[str, tuple[float, float]], tolerance: float = 1e-9) -> set[str]:
    return {name for name, (apart, size) in rows.items() if apart > tolerance * max(1.0, size)} - set(LIMITS)


@pytest.mark.parametrize("changes", ["", "?offset=2", "?rank=3", "?frequencies=equal", "?variant=S", "?d_head=40&letters=50"])
def test_every_equation_holds_in_the_model_that_is_built_by_it(changes: str) -> None:
    rows = checked(f"construct:rope-induction{changes}")
    assert set(rows) == set(EQUATIONS)
    assert failing(rows) <= ({"induction"} if "rank" in changes or "equal" in changes else set())
    assert rows["induction"][1] == 4
    assert rows["frequencies"][1] > 0
    for name in LIMITS:
        assert (rows[name][0] < 1e-3) == ("equal" not in changes)


def test_of_one_rank_all_hold_but_the_prediction_of_b() -> None:
    assert failing(checked("construct:rope-induction?variant=rank-one&beta=615&gamma=400")) == {"induction"}


def test_a_key_that_has_a_share_of_the_token_breaks_what_rests_on_a_constant_key() -> None:
    rows = checked("construct:rope-induction?token_in_key=0.2")
    assert failing(rows) - {"induction"} == {
        *("constant key", "keys", "queries", "scores", "scores as cosines", "attention of layer 0"),
    }
    assert rows["constant key"][0] == pytest.approx(0.8)  # of the token √(32/2) · 0.2


def broken(path: Path, name: str) -> str:
    p = RopeInduction()
    save_directory(path, configuration(p), tensors(p), None)
    stored = load_file(path / "model.safetensors")
    stored[name][..., 1, 1] += 0.5
    save_file(stored, path / "model.safetensors")
    return f"file:{path}"


@pytest.mark.parametrize(
    ("matrix", "breaks"),
    [
        ("layers.0.W_Q", {"query matrix", "queries", "scores", "scores as cosines", "attention of layer 0"}),
        ("layers.0.W_K", {"constant key", "keys", "query matrix", "scores", "scores as cosines", "attention of layer 0"}),
        ("layers.1.W_Q", {"scores of layer 1"}),
        ("embed.W_E", {"embedding of this model"}),
        ("unembed.W_U", set()),
    ],
)
def test_a_broken_matrix_breaks_the_equations_it_is_in(tmp_path: Path, matrix: str, breaks: set[str]) -> None:
    found = failing(checked(broken(tmp_path / "m", matrix)))
    assert breaks <= found, breaks - found
    assert not found & {"rotation", "rotations keep lengths", "logits", "probabilities", "stream after layer 1"}


def test_a_prompt_of_one_letter_has_some_and_another_model_none(tmp_path: Path) -> None:
    rows = checked("construct:rope-induction", (0,))
    none = {name for name, (apart, _) in rows.items() if np.isnan(apart)}
    assert none == {"frequencies", *LIMITS, "induction"} and not failing({n: v for n, v in rows.items() if n not in none})
    with pytest.raises(Refused, match="constructed"):
        checked(f"file:{directory(tmp_path / 'm', CONFIGS['attention-only'], tokenizer=False)}", (1, 2))


def page(changes: str = "", **view: Any) -> Any:
    model = api.open(f"construct:rope-induction{changes}")
    return model.figure("laboratory", text="A B C D A B", set={"page": "equations"} | view).figure


def test_the_page_lists_them_and_explains_the_chosen_one() -> None:
    figure = page(equation="9")
    rows, words = figure.find("equations"), figure.find("words")
    assert isinstance(rows, Rows) and isinstance(words, Prose)
    assert list(rows.columns[0].values) == list(EQUATIONS)
    assert words.formula == EQUATIONS["query matrix"].formula and "query matrix" in figure.title
    assert set(rows.columns[2].values) == {"holds", "≈"}
    np.testing.assert_array_less(rows.columns[3].values[:5], HOLDS)
    assert "fails" in page("?token_in_key=0.2").find("equations").columns[2].values
    state = State(ModelRef("construct:rope-induction"))
    assert pick(state, Hit("equations", (9,))).views["laboratory"] == LaboratoryView(equation=9)
    assert pick(state, Hit("equations", (9,), "hover")) is state


def test_an_equation_is_written_as_it_is_in_the_variant() -> None:
    waves, rank_one = (" ".join(page(f"?variant={v}").find("equations").columns[1].values) for v in ("S", "rank-one"))
    assert "sin" in waves and "u_k" not in waves and "u_k" in rank_one
