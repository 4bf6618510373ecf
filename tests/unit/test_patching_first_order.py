"""First-order estimates of patches against finite differences of a forward pass, in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import NullContext
from circuitlab.analysis.interventions.patched_block import SITES
from circuitlab.analysis.interventions.patching import PatchingParams, PatchingResult
from circuitlab.errors import Cancelled
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from tests.models import CONFIGS
from tests.unit.test_patching import CUTS, LONGER, MEANS, PAIR, PATH, SAME_LENGTH, TOKENS, Lab, difference

KINDS = ("resid_pre", "attn_out", "mlp_out", "head", "pattern", "q", "k", "v")
STEP = 1e-5


class Kept(NullContext):
    """Remembers partial results; cancels once `last` of them are there."""

    def __init__(self, last: float = np.inf) -> None:
        self.last, self.seen = last, list[PatchingResult]()

    def tick(self, done: int, total: int, text: str = "") -> None:
        if len(self.seen) >= self.last:
            raise Cancelled

    def partial(self, result: Any) -> None:
        self.seen.append(result)


def values_at(
    lab: Lab, what: str, layer: int, tokens: tuple[int, ...], edits: Any, one: Intervention | None = None
) -> np.ndarray:
    """[(head,) pos, width] of a forward pass."""
    run = forward(lab.weights, tokens, (*edits, *([one] if one else [])))
    return run.get(SITES.get(what, what), layer).numpy()


def finite_difference(lab: Lab, found: PatchingResult, p: PatchingParams, edits: Any, row: int, col: int) -> float:
    """The target's slope along (there − here) of one cell, by two forward passes with the value moved a little either way."""
    layer, head = map(int, found.rows[row])
    name: Any = SITES.get(p.what, p.what)
    here = values_at(lab, p.what, layer, TOKENS, edits)
    patch = Intervention("patch", Site(name, layer), source=p.source, align=tuple(found.align.tolist()))
    there = values_at(lab, p.what, layer, TOKENS, edits, patch)
    heads = range(here.shape[0]) if p.what == "attn_out" else (max(head, 0),)
    ends = []
    for sign in (1, -1):
        moved = []
        for h in heads:
            a, b = (here[col], there[col]) if here.ndim == 2 else (here[h, col], there[h, col])
            chosen = () if here.ndim == 2 else (h,)
            moved.append(Intervention("set", Site(name, layer, chosen, (col,)), tuple((a + sign * STEP * (b - a)).tolist())))
        ends.append(difference(forward(lab.weights, TOKENS, (*edits, *moved)), p.position))
    return (ends[0] - ends[1]) / (2 * STEP)


def first_of(lab: Lab, p: PatchingParams, edits: Any) -> tuple[PatchingResult, list[PatchingResult]]:
    kept = Kept()
    result: Any = lab.engine.answer(lab.request(p, edits), kept, fresh=True).result
    return result, kept.seen


NAMES = ("attention-only", "gpt2", "llama", "both-norms-capped", "odd", "smeared", "parallel", "alibi", "experts")


@pytest.mark.parametrize("name", NAMES)
def test_an_estimate_is_the_slope_towards_the_other_prompt(tmp_path: Path, name: str) -> None:
    lab, rng = Lab(tmp_path, CONFIGS[name]), np.random.default_rng(len(name))
    cases = (((), SAME_LENGTH, -1), (CUTS, LONGER, 5), (MEANS, LONGER, -2))
    for i, what in enumerate(KINDS):
        if what == "mlp_out" and CONFIGS[name].attention_only:
            continue
        edits, source, position = cases[i % 3]
        p = PatchingParams(source, what, "position", PAIR, position, estimate=True)  # type: ignore[arg-type]
        found, _ = first_of(lab, p, edits)
        assert (np.isfinite(found.estimate) == found.inside).all()
        cells = np.argwhere(found.inside)
        for row, col in (*rng.permutation(cells)[:4], cells[0]):
            wanted = finite_difference(lab, found, p, edits, row, col)
            assert found.estimate[row, col] == pytest.approx(wanted, abs=1e-7, rel=1e-5), (what, row, col)


def test_the_stream_after_attention_moves_as_what_a_head_writes_into_it(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["gpt2"])
    result = lab(PatchingParams(SAME_LENGTH, "resid_mid", target=PAIR, estimate=True))
    here, there = (forward(lab.weights, t) for t in (TOKENS, SAME_LENGTH))
    for layer, col in ((0, 2), (0, 5), (1, 7)):
        change = (there.get("resid_mid", layer) - here.get("resid_mid", layer))[col]
        ends = []
        for sign in (1, -1):
            value = tuple((here.get("result", layer)[0, col] + sign * STEP * change).tolist())
            edit = Intervention("set", Site("result", layer, (0,), (col,)), value)
            ends.append(difference(forward(lab.weights, TOKENS, (edit,))))
        assert result.estimate[layer, col] == pytest.approx((ends[0] - ends[1]) / (2 * STEP), abs=1e-7)


def test_all_positions_at_once_are_the_sum_of_each(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["llama"])
    for what in ("head", "k", "resid_pre"):
        each, every = (lab(PatchingParams(LONGER, what, grid, PAIR, estimate=True), CUTS) for grid in ("position", "all"))  # type: ignore[arg-type]
        np.testing.assert_allclose(every.estimate[:, 0], np.nansum(each.estimate, axis=1), atol=1e-12)


def test_estimates_come_first_and_are_told_from_exact_values(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["gpt2"])
    p = PatchingParams(SAME_LENGTH, target=PAIR, estimate=True)
    found, seen = first_of(lab, p, ())
    plain = lab(PatchingParams(SAME_LENGTH, target=PAIR))
    np.testing.assert_allclose(found.values, plain.values, rtol=1e-12)  # in other batches
    assert np.isnan(plain.estimate).all() and not any("first-order" in w for w in plain.conventions)
    last, both = seen[0], seen[1]
    assert np.isnan(last.values[:4]).all() and np.isfinite(last.values[4:]).all()
    assert np.isfinite(both.values).all() and (both.exact == ~both.inside).all()
    np.testing.assert_allclose(both.effect[both.inside], found.estimate[both.inside], atol=1e-12)
    kinds = both.table().columns[-1].values
    assert set(kinds[both.inside.ravel()]) == {"first-order"} and set(kinds[~both.inside.ravel()]) == {"exact"}
    assert not any("off by" in w for w in both.conventions)
    off = np.abs(found.estimate - found.effect)[found.inside]
    said = next(w for w in found.conventions if "off by" in w)
    assert f"off by {off.mean():.3f}" in said and f"{off.max():.3f} at most" in said
    assert off.max() > 1e-4  # else nothing was tested


def test_a_cancelled_sweep_keeps_estimates_and_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["gpt2"])
    request = lab.request(PatchingParams(SAME_LENGTH, target=PAIR, estimate=True))
    wanted: Any = lab.engine.answer(request, fresh=True).result
    other = Lab(tmp_path / "again", CONFIGS["gpt2"])
    request = other.request(PatchingParams(SAME_LENGTH, target=PAIR, estimate=True))
    with pytest.raises(Cancelled):
        other.engine.answer(request, Kept(3))
    rest = Kept()
    result: Any = other.engine.answer(request, rest).result
    assert all(np.isfinite(one.values).all() for one in rest.seen)  # no second backward pass
    np.testing.assert_allclose(result.values, wanted.values, atol=1e-11)
    np.testing.assert_allclose(result.estimate, wanted.estimate, atol=1e-11)
    assert result.exact.all()


def test_along_a_path_there_is_no_estimate_and_afresh_is_bit_equal(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["gpt2"])
    assert np.isnan(lab(PatchingParams(LONGER, target=PAIR, estimate=True), PATH).estimate).all()
    request = lab.request(PatchingParams(LONGER, "v", target=PAIR, estimate=True), CUTS)
    assert len({lab.engine.answer(request, fresh=True).fingerprint for _ in range(2)}) == 1
    one = lab(PatchingParams((1,), target=PAIR, estimate=True), (), (2,))
    assert np.isfinite(one.values).all() and np.isfinite(one.estimate[one.inside]).all()
