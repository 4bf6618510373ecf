"""Path patching against a forward pass with the same intervention along the path, in double precision."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.interventions.path_patching import PathPatchingParams
from circuitlab.errors import BadInput, Cancelled, Refused
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Head
from tests.models import CONFIGS, TINY
from tests.unit.test_patching import CUTS, LONGER, MEANS, PAIR, PATH, SAME_LENGTH, TOKENS, Lab, Until, difference

PARTS = {"Q": "q", "K": "k", "V": "v"}


READS = tuple(Intervention("scale", Site(name, 1, (0,)), (0.4,)) for name in ("q", "k", "v"))


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd", "parallel", "smeared-rotary"])
@pytest.mark.parametrize("writer", ["head", "mlp"])
def test_a_receiver_reads_the_sender_of_the_other_prompt_and_nobody_else_does(tmp_path: Path, name: str, writer: str) -> None:
    config = replace(CONFIGS[name], n_layers=3)
    if writer == "mlp" and config.attention_only:
        return
    lab, rng = Lab(tmp_path, config), np.random.default_rng(0)
    cases = (((), SAME_LENGTH, -1), (CUTS, LONGER, 5), (MEANS, LONGER, -2), (PATH, SAME_LENGTH, -1))
    cases = (*cases, ((*READS, Intervention("zero", Site("resid_pre", 2, (), (4,)))), LONGER, -1))
    for edits, source, position in cases if name in ("gpt2", "smeared-rotary") else cases[1:2]:
        p = PathPatchingParams(source, Head(0, 2), writer, target=PAIR, position=position)  # type: ignore[arg-type]
        result = lab(p, edits, name="path_patching")
        assert np.isnan(result.values[:, 0]).all()
        assert np.isfinite(result.values[:, 1:]).all()
        sender = Site("mlp_out", 0) if writer == "mlp" else Site("result", 0, (2,))
        align = tuple(result.align.tolist())
        total = forward(lab.weights, TOKENS, (*edits, Intervention("patch", sender, source=source, align=align)))
        assert result.total == pytest.approx(difference(total, position), abs=1e-10)
        for i, through in enumerate(result.names):
            for layer, head in ((1, 0), rng.integers((1, 0), (3, config.n_heads))):
                one = int(head) if through == "Q" else config.kv_head(int(head))
                site = Site(PARTS[through], layer, (one,))  # type: ignore[arg-type]
                edit = Intervention("patch", site, source=source, align=align, path_from=sender)
                wanted = difference(forward(lab.weights, TOKENS, (*edits, edit)), position)
                assert result.values[i, layer, head] == pytest.approx(wanted, abs=1e-10), (len(edits), through, layer, head)


def test_some_paths_do_something_and_receivers_can_be_chosen(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(CONFIGS["gpt2"], n_layers=3))
    p = PathPatchingParams(SAME_LENGTH, Head(0, 1), target=PAIR)
    every = lab(p, name="path_patching")
    assert (np.abs(every.effect[:, 1:]) > 1e-6).mean() > 0.5
    np.testing.assert_allclose(every.normalised[0, 1, 2], every.effect[0, 1, 2] / (every.other - every.clean))
    some = lab(replace(p, receivers=(Head(2, 1), Head(1, 0)), through=("V",)), name="path_patching")
    assert some.values.shape == (1, 3, 4)
    assert np.isfinite(some.values).sum() == 2
    for layer, head in ((2, 1), (1, 0)):
        assert some.values[0, layer, head] == pytest.approx(every.values[2, layer, head], abs=1e-12)
    assert some.table().n_rows == 2
    assert some.table().columns[0].values.tolist() == ["L1H0", "L2H1"]


def test_heads_of_a_group_read_keys_and_values_together(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["llama"])
    result = lab(PathPatchingParams(SAME_LENGTH, target=PAIR), name="path_patching")
    for i in (1, 2):
        assert (result.values[i, 1, 0] == result.values[i, 1, 1]) and (result.values[i, 1, 2] == result.values[i, 1, 3])
    assert len(set(result.values[0, 1])) == 4
    assert "group" in " ".join(result.conventions)


def test_a_cancelled_sweep_goes_on(tmp_path: Path) -> None:
    lab = Lab(tmp_path, replace(CONFIGS["gpt2"], n_layers=4))
    request = lab.request(PathPatchingParams(SAME_LENGTH, target=PAIR), name="path_patching")
    whole = Until()
    wanted: Any = lab.engine.answer(request, whole, fresh=True).result
    assert len(whole.seen) == 9 and whole.seen[0].done < 1
    other = Lab(tmp_path / "again", replace(CONFIGS["gpt2"], n_layers=4))
    request = other.request(PathPatchingParams(SAME_LENGTH, target=PAIR), name="path_patching")
    with pytest.raises(Cancelled):
        other.engine.answer(request, Until(whole.ticks - 3))
    rest = Until()
    result: Any = other.engine.answer(request, rest).result
    assert rest.ticks < 0.75 * whole.ticks
    np.testing.assert_allclose(result.values, wanted.values, atol=1e-11)


def test_afresh_it_is_bit_equal_and_refusals_say_why(tmp_path: Path) -> None:
    lab = Lab(tmp_path, CONFIGS["llama"], "float32")
    request = lab.request(PathPatchingParams(LONGER, Head(0, 1), target=PAIR), CUTS, name="path_patching")
    assert len({lab.engine.answer(request, fresh=True).fingerprint for _ in range(2)}) == 1
    with pytest.raises(Refused, match="layer 1"):
        lab(PathPatchingParams(LONGER, Head(1, 0)), name="path_patching")
    with pytest.raises(BadInput, match="not later"):
        lab(PathPatchingParams(LONGER, Head(0, 0), receivers=(Head(0, 1),)), name="path_patching")
    with pytest.raises(BadInput, match="no such head"):
        lab(PathPatchingParams(LONGER, Head(0, 9)), name="path_patching")
    with pytest.raises(Refused, match="pre-norm"):
        Lab(tmp_path / "b", CONFIGS["both-norms-capped"])(PathPatchingParams(LONGER), name="path_patching")
    with pytest.raises(Refused, match="no MLP"):
        Lab(tmp_path / "a", TINY)(PathPatchingParams(LONGER, writer="mlp"), name="path_patching")
