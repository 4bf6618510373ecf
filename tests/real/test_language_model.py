"""What was measured on a real language model, measured again: behaviour, weights and cuts of its induction heads.

SmolLM2-135M-Instruct from a file with 5.7 bits a weight. Random tokens are drawn here, so that figures differ from those
measured before by as much as samples do; what is compared with is in the order in which it was found: behaviour names heads,
weights name their senders, cuts decide.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.base import TextRef
from circuitlab.disk.paths import resource
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head
from tests.real_file import smollm2

pytestmark = pytest.mark.slow

INDUCTION = {  # attention from a token to what followed its earlier copies, on repeated random tokens
    "L18H6": 0.93, "L17H4": 0.87, "L17H3": 0.85, "L17H5": 0.83, "L23H7": 0.69, "L18H7": 0.66, "L23H2": 0.64, "L20H6": 0.62,
    "L24H4": 0.53, "L23H1": 0.47, "L23H8": 0.45, "L22H7": 0.43,
}  # fmt: skip
PREVIOUS = {"L16H0": 0.90, "L11H1": 0.85, "L2H1": 0.73, "L19H3": 0.73, "L22H1": 0.71, "L1H2": 0.69, "L19H8": 0.54, "L17H8": 0.38}
FIRST_TEN = {  # of 35,235 pairs by K-composition: sender, receiver
    ("L17H8", "L18H7"): 0.180, ("L17H8", "L18H8"): 0.179, ("L17H8", "L18H6"): 0.175, ("L16H0", "L17H3"): 0.168,
    ("L16H0", "L18H8"): 0.165, ("L16H0", "L18H7"): 0.165, ("L16H0", "L18H6"): 0.161, ("L16H0", "L17H4"): 0.158,
    ("L19H3", "L20H6"): 0.154, ("L16H0", "L17H5"): 0.152,
}  # fmt: skip
SENDERS = "L16H0,L17H8,L19H3,L22H1"
NO_SENDERS = "L11H1,L2H1,L1H2,L10H5"  # previous-token heads as strong as they
TWELVE = ",".join(INDUCTION)
PARAGRAPH = (
    "The mill stood where two brooks met, and its wheel had not turned since the miller's son left for the coast. Swallows "
    "nested in the hopper. Every spring the water rose to the sill of the low window."
)


@pytest.fixture(scope="module")
def model() -> Any:
    return api.open(str(smollm2()), use=Engine(ModelStore()))


def of(scores: np.ndarray, name: str) -> float:
    return float(scores[Head.parse(name)])


def edges_from(sender: str) -> tuple[Intervention, ...]:
    """The sender's output taken from two keys: the one of L17H3 to L17H5, and the one of L18H6 to L18H8."""
    source = Head.parse(sender)
    path = Site("result", source.layer, (source.head,))
    return tuple(Intervention("zero", Site("k", *place), path_from=path) for place in ((17, (1,)), (18, (2,))))


def test_some_dozen_heads_match_prefixes_and_more_attend_to_the_token_before(model: Any) -> None:
    result = model.compute("head_scores").result
    prefix, previous = result.of("prefix_matching"), result.of("previous_token")
    assert {name: of(prefix, name) for name in INDUCTION} == pytest.approx(INDUCTION, abs=0.06)
    assert 10 <= (prefix >= 0.4).sum() <= 14 and np.isfinite(prefix).sum() == 270
    control = result.control[result.names.index("prefix_matching")]
    assert max(of(control, name) for name in INDUCTION) < 0.03, "where nothing is repeated"
    assert {name: of(previous, name) for name in PREVIOUS} == pytest.approx(PREVIOUS, abs=0.06)
    assert max(of(previous, name) for name in PREVIOUS) == previous.max()


def test_the_weights_alone_name_the_senders(model: Any) -> None:
    result = model.compute("composition", kinds=("K",)).result
    scores, z = result.scores[0], result.z[0]
    assert result.baseline == pytest.approx(0.042, abs=5e-4) and np.isfinite(scores).sum() == 35_235
    found = {pair: float(scores[(*Head.parse(pair[1]), *Head.parse(pair[0]))]) for pair in FIRST_TEN}
    assert found == pytest.approx(FIRST_TEN, abs=2e-3)
    order = np.argsort(-np.nan_to_num(scores, nan=-1), axis=None)[:10]
    first = [tuple(map(int, np.unravel_index(i, scores.shape))) for i in order]
    assert {(str(Head(c, d)), str(Head(a, b))) for a, b, c, d in first} == set(FIRST_TEN)
    assert all(200 < z[i] < 330 for i in first)
    for name, most in (("L11H1", 0.073), ("L2H1", 0.083)):
        assert np.nanmax(scores[:, :, *Head.parse(name)]) == pytest.approx(most, abs=2e-3), name


@pytest.mark.parametrize(
    ("sender", "positivity"),
    [
        ("L17H8", {"L18H6": 0.990}),
        ("L16H0", {"L17H3": 0.970, "L17H4": 0.969, "L17H5": 0.978, "L18H6": 0.971}),
        ("L19H3", {"L20H6": 0.966}),
        ("L22H1", {"L23H2": 0.966}),
        ("L11H1", {"L17H4": 0.163}),
    ],
)
def test_through_a_sender_the_keys_match_tokens_with_themselves(model: Any, sender: str, positivity: dict[str, float]) -> None:
    heads = tuple(map(Head.parse, positivity))
    result = model.compute("qk_spectrum", heads=heads, behind=Head.parse(sender)).result
    found = result.eigenvalues.sum(1).real / abs(result.eigenvalues).sum(1)
    assert dict(zip(positivity, found.tolist(), strict=True)) == pytest.approx(positivity, abs=0.01)


def test_of_an_induction_heads_score_in_prose_most_is_one_senders(model: Any) -> None:
    text = "Mr and Mrs Dursley of number four, Privet Drive, were proud to say that they were perfectly normal. Mr and Mrs Durs"
    tokens = model.tokens(text)
    assert model.compute("predictions", text, k=1).result.ids[0] == model.tokens("ley")[0]
    source = next(i for i, token in enumerate(tokens[:-1]) if token == tokens[-1]) + 1
    result = model.compute("score_expansion", text, head="L18H6", destination=-1, source=source).result
    key = [i for i, one in enumerate(result.heads.tolist()) if one == [16, 0]]
    assert len(key) == 1 and 0.65 < result.centred[:, key[0]].sum() / result.centred.sum() < 0.95
    later = model.compute("score_expansion", text, head="L23H2", destination=-1, source=source).result
    key = [i for i, one in enumerate(later.heads.tolist()) if one == [22, 1]]
    assert later.centred[:, key[0]].sum() / later.centred.sum() < 0.3, "later heads read what many have written"


@pytest.mark.parametrize(
    ("cut", "edge", "losses"),
    [
        ("", "", (15.0, 3.42, 1.30, 0.91)),
        ("L16H0", "", (15.2, 8.88, 6.66, 5.29)),
        (SENDERS, "", (15.2, 11.8, 11.1, 10.73)),
        (NO_SENDERS, "", (15.4, 3.75, 1.72, 1.19)),
        (TWELVE, "", (None, None, None, 11.0)),
        ("", "L16H0", (15.1, 11.4, 9.60, 8.53)),
        ("", "L11H1", (15.1, 3.9, 1.8, 1.2)),  # of the edges into the same two keys
    ],
)
def test_without_the_senders_repetition_helps_little_and_without_others_as_much(
    model: Any, cut: str, edge: str, losses: tuple[float | None, ...]
) -> None:
    """Nats of each of four repetitions of 25 random tokens, within what eight texts leave open."""
    edits = edges_from(edge) if edge else ()
    result = model.compute("in_context", cut=cut, edits=edits, block=25, repeats=4, texts=8, edited=True).result
    found = result.repetitions.mean(0)
    for value, expected in zip(found, losses, strict=True):
        assert expected is None or value == pytest.approx(expected, abs=0.3 + 0.12 * expected), (found, losses)


def test_of_the_heads_that_behaviour_names_the_first_sender_costs_most(model: Any) -> None:
    """Each cut alone; loss of the second of two blocks of 30 random tokens. Heads that no score names may cost more."""
    block = np.random.default_rng(0).integers(0, model.config.d_vocab, 30).tolist()
    heads = tuple(map(Head.parse, {**INDUCTION, **PREVIOUS}))
    result = model.compute("ablation", tokens=block * 2, effect="second_half", heads=heads).result
    found = {str(head): float(result.effect[head]) for head in heads}
    assert max(found, key=found.__getitem__) == "L16H0" and found["L16H0"] == pytest.approx(5.7, abs=2), found
    assert found["L11H1"] < found["L18H6"] and found["L11H1"] < 0.5


@pytest.mark.parametrize(
    ("cut", "edge", "first", "second"),
    [
        ("", "", 4.16, 0.31),
        ("L16H0", "", 4.15, 0.94),
        (SENDERS, "", 4.21, 1.36),
        (NO_SENDERS, "", 4.30, 0.20),
        (TWELVE, "", 4.16, 2.33),
        ("", "L16H0", 4.17, 1.73),
    ],
)
def test_in_prose_what_is_new_does_not_notice_the_cuts(model: Any, cut: str, edge: str, first: float, second: float) -> None:
    """A paragraph and the same again; measured before on another one, so the second copy's loss is compared loosely."""
    result = model.compute("token_loss", f"{PARAGRAPH} {PARAGRAPH}", cut=cut, edits=edges_from(edge) if edge else ()).result
    half = len(result.loss) // 2
    assert np.nanmean(result.loss[1:half]) == pytest.approx(first, abs=0.6)
    assert np.nanmean(result.loss[half + 1 :]) == pytest.approx(second, abs=0.2 + 0.4 * second)


def test_behind_the_first_mlp_the_heads_copy_what_the_bare_embedding_hides(model: Any) -> None:
    alone = model.compute("copying_scores", qk=False, diagonal="none").result.copying
    after = model.compute("copying_scores", qk=False, diagonal="none", embed="after the first MLP").result.copying
    expected = {"L23H2": (-0.19, 0.98), "L23H7": (-0.09, 0.91), "L20H6": (-0.41, 0.81), "L18H6": (0.59, 0.81)}
    found = {name: (of(alone, name), of(after, name)) for name in expected}
    for name, pair in expected.items():
        assert found[name] == pytest.approx(pair, abs=0.02), name
    assert of(after, "L24H4") == pytest.approx(-0.97, abs=0.02), "which lowers what it attends to"


@pytest.mark.parametrize(
    ("name", "first", "above", "of_all"),
    [
        ("pattern_matching", 5, 8, 16),  # as chance: the answers begin with the space of " 0", which is part of the prompt
        ("translation", 8, 15, 15),
        ("few_shot_classification", 16, 16, 20),
        ("random_tokens", 14, 16, 16),
    ],
)
def test_what_the_model_can_do_of_what_the_prompt_sets_ask(
    prompt_set: Callable[[str], Any], name: str, first: int, above: int, of_all: int
) -> None:
    result = prompt_set(name)
    assert result.first_choices == (first, of_all) and result.above_the_other == (above, of_all)


@pytest.fixture
def prompt_set(model: Any) -> Callable[[str], Any]:
    def ask(name: str) -> Any:
        given = {"file": TextRef(str(resource("prompts", f"{name}.tsv"))), "analysis": "direct_attribution"}
        return model.compute("over_prompts", set=given).result

    return ask
