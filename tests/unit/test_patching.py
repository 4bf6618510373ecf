"""Patching against a forward pass with the same intervention, cell by cell, in double precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.interventions.alignment import alignment_of
from circuitlab.analysis.interventions.patched_block import SITES
from circuitlab.analysis.interventions.patching import PatchingParams, PatchingResult
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import Run
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.models import CONFIGS, TINY, directory

TOKENS = (0, 5, 4, 5, 6, 2, 3, 1)
SAME_LENGTH = (0, 5, 3, 5, 6, 6, 3, 1)
LONGER = (0, 5, 3, 2, 5, 6, 6, 3, 1)
PAIR = Target((2, 1))
CUTS = (
    Intervention("scale", Site("result", 1, (1,)), (0.5,)),
    Intervention("mean", Site("z", 1, (2,)), source=(1, 2, 3)),
    Intervention("freeze", Site("pattern", 1, (0,))),
    Intervention("zero", Site("v", 0, (0,), (3,))),
    Intervention("scale", Site("resid_pre", 1, (), (4,)), (1.3,)),
)
MEANS = (Intervention("mean", Site("result", 1, (0,))), Intervention("mean", Site("pattern", 1, (1,))))
PATH = (Intervention("patch", Site("q", 1, (0,)), source=SAME_LENGTH, path_from=Site("result", 0, (1,))),)


class Lab:
    """One model in double precision."""

    def __init__(self, path: Path, config: ModelConfig, dtype: Any = "float64") -> None:
        self.conventions = Conventions(dtype=dtype)
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{directory(path / 'm', config)}")

    @property
    def weights(self) -> Any:
        return self.engine.store.open(self.ref).weights(self.conventions)

    def request(self, params: Any, edits: Any = (), tokens: tuple[int, ...] = TOKENS, name: str = "patching") -> Request:
        return Request.named(name, params, Subject(self.ref, tokens, edits, self.conventions))

    def __call__(self, params: Any, edits: Any = (), tokens: tuple[int, ...] = TOKENS, name: str = "patching") -> Any:
        return self.engine.answer(self.request(params, edits, tokens, name)).result


def difference(run: Run, position: int = -1) -> float:
    """Logit of token 2 minus that of token 1, by hand and before a soft cap."""
    w = run.weights
    assert run.final is not None
    x = run.final[position]
    if w.config.final_norm and w.config.norm != "none":
        x = x - x.mean() if w.config.norm == "layer" else x
        x = x / (x.square().mean() + w.config.norm_eps).sqrt()  # the gain is folded
    ends = w.unembed()
    bias = 0.0 if ends.b_U is None else float(ends.b_U[2] - ends.b_U[1])
    return float(x @ (ends.W_U[:, 2] - ends.W_U[:, 1])) + bias


def by_forward(lab: Lab, found: PatchingResult, p: PatchingParams, edits: Any, row: int, col: int) -> float:
    """The cell from one forward pass with one more intervention."""
    layer, head = map(int, found.rows[row])
    positions = () if p.grid == "all" else (col,)
    site = Site(SITES.get(p.what, p.what), layer, () if head < 0 else (head,), positions)  # type: ignore[arg-type]
    edit = Intervention("patch", site, source=p.source, align=tuple(found.align.tolist()))
    return difference(forward(lab.weights, TOKENS, (*edits, edit)), p.position)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "both-norms-capped", "odd", "smeared", "parallel", "alibi"])
def test_a_cell_is_a_forward_pass_with_that_value_exchanged(tmp_path: Path, name: str) -> None:
    lab, rng = Lab(tmp_path, CONFIGS[name]), np.random.default_rng(len(name))
    kinds = ("resid_pre", "attn_out", "mlp_out", "head", "pattern", "q", "k", "v")
    cases = (
        ((), SAME_LENGTH, "position", -1),
        (CUTS, LONGER, "position", 5),
        (MEANS, LONGER, "position", -2),
        (CUTS, LONGER, "all", -1),
    )
    for i, what in enumerate(kinds):
        if what == "mlp_out" and CONFIGS[name].attention_only:
            continue
        for edits, source, grid, position in rng.permutation(np.array(cases, dtype=object))[: 1 + i % 2]:
            p = PatchingParams(source, what, grid, PAIR, position)  # type: ignore[arg-type]
            result = lab(p, edits)
            assert result.clean == pytest.approx(difference(forward(lab.weights, TOKENS, edits), position), abs=1e-11)
            cells = np.argwhere(result.inside)
            for row, col in (*rng.permutation(cells)[:2], (len(result.rows) - 1, result.values.shape[1] - 1)):
                wanted = by_forward(lab, result, p, edits, row, col)
                assert result.values[row, col] == pytest.approx(wanted, abs=1e-10), (what, len(edits), row, col)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama"])
@pytest.mark.parametrize("position", [-1, 5])
def test_the_stream_after_attention_is_exchanged_as_if_a_head_had_written_the_difference(
    tmp_path: Path, name: str, position: int
) -> None:
    lab = Lab(tmp_path, CONFIGS[name])
    result = lab(PatchingParams(SAME_LENGTH, "resid_mid", "position", PAIR, position))
    here, there = forward(lab.weights, TOKENS), forward(lab.weights, SAME_LENGTH)
    for layer, col in ((0, 2), (0, 5), (1, 5), (1, 7), (1, 2)):
        change = there.get("resid_mid", layer)[col] - here.get("resid_mid", layer)[col]
        value = tuple((here.get("result", layer)[0, col] + change).tolist())
        edit = Intervention("set", Site("result", layer, (0,), (col,)), value)
        wanted = difference(forward(lab.weights, TOKENS, (edit,)), position)
        assert result.values[layer, col] == pytest.approx(wanted, abs=1e-10)


def test_all_streams_exchanged_are_the_other_prompt(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["gpt2"])
    result = lab(PatchingParams(SAME_LENGTH, "resid_pre", "all", PAIR))
    assert result.other == pytest.approx(difference(forward(lab.weights, SAME_LENGTH)), abs=1e-11)
    np.testing.assert_allclose(result.values[:, 0], result.other, atol=1e-10)
    np.testing.assert_allclose(result.normalised, 1, atol=1e-9)
    assert result.positions.tolist() == [-1]


@pytest.mark.parametrize("name", ["gpt2", "smeared"])
def test_outside_the_cone_nothing_can_happen(tmp_path: Path, name: str) -> None:
    config = replace(CONFIGS[name], n_layers=3, windows=(3, 2, 2))
    lab = Lab(tmp_path, config)
    for what in ("head", "resid_pre", "k"):
        p = PatchingParams(SAME_LENGTH, what, "position", PAIR, 6)  # type: ignore[arg-type]
        result = lab(p)
        assert not result.inside[:, :2].any()  # before the first difference
        assert not result.inside[:, 7].any()  # after what is read
        assert (result.values[~result.inside] == result.clean).all()
        for row, col in np.argwhere(~result.inside)[::7]:
            assert by_forward(lab, result, p, (), row, col) == pytest.approx(result.clean, abs=1e-11), (what, row, col)
    p = PatchingParams(SAME_LENGTH, "head", "position", PAIR, 6)
    result = lab(p)
    last = result.inside[result.rows[:, 0] == 2]
    assert last[:, 6].all() and not last[:, :6].any()
    assert (result.values[result.inside] != result.clean).mean() > 0.9


def test_equal_prompts_are_aligned_by_position_and_others_by_equal_blocks() -> None:
    same = alignment_of((1, 2, 3, 4), (1, 9, 2, 4))
    assert same.align.tolist() == [0, 1, 2, 3]
    assert same.differs.tolist() == [False, True, True, False]
    assert same.first_difference == 1
    longer = alignment_of((1, 2, 3, 4, 5), (1, 2, 7, 8, 9, 4, 5, 6))
    assert longer.align.tolist() == [0, 1, 4, 5, 6]  # a replaced block from its end
    assert longer.differs.tolist() == [False, False, True, False, False]
    shorter = alignment_of((1, 7, 8, 2, 3), (1, 2, 3))
    assert shorter.align.tolist() == [0, -1, -1, 1, 2]
    assert not shorter.differs.any()
    assert shorter.first_difference == 1
    assert alignment_of((1, 2), (1, 2)).first_difference == 2
    assert "2 tokens here have no partner" in shorter.words


def test_a_position_without_a_partner_is_left_alone(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TINY)
    result = lab(PatchingParams(TOKENS[:3] + TOKENS[4:], target=PAIR))
    assert result.align.tolist() == [0, 1, 2, -1, 3, 4, 5, 6]
    assert not result.inside[:, 3].any()
    assert result.inside[:4, 4:].all()
    ends = lab(PatchingParams(TOKENS[:-1], target=PAIR))
    assert np.isnan(ends.other)
    assert np.isnan(ends.normalised).all()
    assert "no partner" in " ".join(ends.conventions)


def test_without_another_prompt_it_is_this_one_without_its_interventions(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TINY)
    with pytest.raises(BadInput, match="nothing to patch"):
        lab(PatchingParams(target=PAIR))
    cut = (Intervention("zero", Site("result", 0, (1,))),)
    result = lab(PatchingParams(target=PAIR, grid="all"), cut)
    assert result.other == pytest.approx(difference(forward(lab.weights, TOKENS)), abs=1e-11)
    assert result.values[1, 0] == pytest.approx(result.other, abs=1e-10)  # the very head that was cut is restored


def test_contrast_is_what_the_other_prompt_predicts_minus_what_this_one_does(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["gpt2"])
    other = (*SAME_LENGTH[:-1], 77)
    result = lab(PatchingParams(other, "resid_pre", contrast=True))
    tops = [int(forward(lab.weights, t).logits()[-1].argmax()) for t in (other, TOKENS)]
    assert tops[0] != tops[1]
    assert result.ids.tolist() == tops
    assert result.clean < 0 < result.other
    np.testing.assert_array_equal(result.values, lab(PatchingParams(other, "resid_pre", target=Target(tuple(tops)))).values)
    chosen = lab(PatchingParams(other, "resid_pre", target=PAIR, contrast=True))
    assert chosen.ids.tolist() == [2, 1]


def test_rows_are_those_of_the_heads_that_are_asked_for(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["llama"])
    heads = (Head(1, 3), Head(0, 1))
    assert lab(PatchingParams(SAME_LENGTH, "q", heads=heads)).rows.tolist() == [[0, 1], [1, 3]]
    keys = lab(PatchingParams(SAME_LENGTH, "k", heads=heads))
    assert keys.rows.tolist() == [[0, 0], [1, 1]]
    assert "key-value heads" in " ".join(keys.conventions)
    assert lab(PatchingParams(SAME_LENGTH, "k")).rows.shape == (4, 2)
    assert lab(PatchingParams(SAME_LENGTH, "mlp_out", heads=heads[:1])).rows.tolist() == [[1, -1]]
    np.testing.assert_allclose(keys.values, lab(PatchingParams(SAME_LENGTH, "k")).values[[0, 3]], rtol=1e-12)  # other batches
    with pytest.raises(BadInput, match="no such head"):
        lab(PatchingParams(SAME_LENGTH, heads=(Head(2, 0),)))


def test_beside_an_intervention_along_a_path(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TINY)
    for what in ("head", "k", "attn_out"):
        p = PatchingParams(LONGER, what, "position", PAIR)  # type: ignore[arg-type]
        result = lab(p, PATH)
        for row, col in np.argwhere(result.inside)[::5]:
            assert result.values[row, col] == pytest.approx(by_forward(lab, result, p, PATH, row, col), abs=1e-10)
    with pytest.raises(BadInput, match="along a path"):
        lab(PatchingParams(LONGER, "resid_mid", target=PAIR), PATH)


class Until(NullContext):
    """Cancels at the given tick; remembers partial results."""

    def __init__(self, last: float = np.inf) -> None:
        self.last, self.ticks, self.seen = last, 0, list[PatchingResult]()

    def tick(self, done: int, total: int, text: str = "") -> None:
        assert 0 <= done <= total
        self.ticks += 1
        if self.ticks > self.last:
            raise Cancelled()

    def partial(self, result: Any) -> None:
        self.seen.append(result)


def test_a_cancelled_sweep_goes_on_where_it_stopped(tmp_path: Path) -> None:
    config = replace(CONFIGS["gpt2"], n_layers=4)
    lab, whole = Lab(tmp_path, config), Until()
    request = lab.request(PatchingParams(SAME_LENGTH, target=PAIR))
    wanted: Any = lab.engine.answer(request, whole, fresh=True).result
    shares = [r.done for r in whole.seen]
    assert shares == sorted(shares) and len(shares) >= 3 and shares[-1] < 1
    assert all((np.isnan(r.values) == ~r.exact).all() for r in whole.seen)
    other = Lab(tmp_path / "again", config)
    request = other.request(PatchingParams(SAME_LENGTH, target=PAIR))
    with pytest.raises(Cancelled):
        other.engine.answer(request, Until(whole.ticks - 2))
    rest = Until()
    result: Any = other.engine.answer(request, rest).result
    assert rest.ticks < whole.ticks / 2
    assert result.exact.all() and result.done == 1
    np.testing.assert_allclose(result.values, wanted.values, atol=1e-11)


def test_computed_afresh_it_is_bit_equal(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["llama"], "float32")
    for params in (PatchingParams(LONGER, "v", target=PAIR), PatchingParams(LONGER, "head", "all", PAIR)):
        prints = {lab.engine.answer(lab.request(params, CUTS), fresh=True).fingerprint for _ in range(2)}
        assert len(prints) == 1


def test_batches_of_many_rows_give_the_same_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from circuitlab.analysis.interventions import _partial_reruns

    lab, p = Lab(tmp_path, CONFIGS["gpt2"]), PatchingParams(LONGER, "k", target=PAIR)
    wanted = lab(p).values
    monkeypatch.setattr(_partial_reruns, "ROWS", 5)
    monkeypatch.setattr(_partial_reruns, "WAVE", 11)
    result: Any = lab.engine.answer(lab.request(p), fresh=True).result
    np.testing.assert_allclose(result.values, wanted, atol=1e-11)


@pytest.mark.parametrize("name", ["attention-only", "llama", "both-norms-capped", "odd"])
@pytest.mark.parametrize("n", [1, 48])
def test_one_token_and_a_full_context(tmp_path: Path, name: str, n: int) -> None:
    lab = Lab(tmp_path, CONFIGS[name], "float32")
    tokens = tuple(i % 7 for i in range(n))
    result = lab(PatchingParams(((1,) * n) if n == 1 else (*tokens[:40], 3, 3, *tokens[42:]), "head"), (), tokens)
    assert np.isfinite(result.values).all()
    assert result.inside.any()
    assert result.table().n_rows == result.values.size
    assert np.isfinite(result.normalised).all()
    if n == 1:
        last = result.inside[:, 0]
        assert (result.values[last, 0] != result.clean).all()


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    lab = Lab(tmp_path, TINY)
    with pytest.raises(Refused, match="no MLP"):
        lab(PatchingParams(SAME_LENGTH, "mlp_out"))
    with pytest.raises(BadInput, match="no such position"):
        lab(PatchingParams(SAME_LENGTH, position=8))
    with pytest.raises(BadInput, match="longer"):
        lab(PatchingParams((1,) * 49))
    assert torch.is_grad_enabled()
