"""Rows, columns, top tokens and largest entries of circuits against the materialised `d_vocab × d_vocab` matrices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import circuitlab.analysis.circuits.largest_entries as largest
from circuitlab.analysis.base import NullContext
from circuitlab.analysis.circuits.effective_embedding import EffectiveEmbeddingParams
from circuitlab.analysis.circuits.largest_entries import LargestEntriesParams, lengths
from circuitlab.analysis.circuits.ov_table import OvTableParams
from circuitlab.analysis.circuits.ov_top_tokens import OvTopTokensParams
from circuitlab.analysis.circuits.qk_table import QkTableParams
from circuitlab.analysis.circuits.token_circuits import TokenCircuitsParams
from circuitlab.analysis.circuits.vocabulary_rows import BLOCK, padded, top_of_rows
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, Refused
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.models import CONFIGS, directory
from tests.reference.whole_circuits import Whole, as_double, centred, gauged
from tests.rounding import check_largest, check_listed, check_ranks

DOUBLE = Conventions(dtype="float64")
NAMES = ("attention-only", "gpt2", "llama", "odd", "smeared-rotary", "tied-scaled")


def ask(path: Path, name: str, p: Any, conventions: Conventions = DOUBLE, engine: Engine | None = None) -> Any:
    engine = engine or Engine(ModelStore())
    return engine.answer(Request.named(name, p, Subject(ModelRef(f"file:{path}"), (), (), conventions))).result


def made(tmp_path: Path, name: str, **changes: Any) -> tuple[Path, ModelConfig]:
    config = replace(CONFIGS[name], **changes)
    return directory(tmp_path / name, config, tokenizer=False), config


def _ends(found: Any, row: np.ndarray, k: int) -> None:
    assert len(found.top_ids) == len(found.bottom_ids) == min(k, len(row))
    check_largest(found.top_ids, row, atol=1e-5)
    check_largest(found.bottom_ids, -row, atol=1e-5)
    np.testing.assert_allclose(found.top, row[found.top_ids], atol=1e-5)
    np.testing.assert_allclose(found.bottom, row[found.bottom_ids], atol=1e-5)
    assert found.sd == pytest.approx(row.std(), rel=1e-9)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("through", [None, Head(0, 1)])
def test_ov_rows_and_columns_are_those_of_the_whole_circuit(tmp_path: Path, name: str, through: Head | None) -> None:
    path, c = made(tmp_path, name)
    head, engine = Head(1, 2), Engine(ModelStore())
    whole = Whole(path, c).ov(head, through)
    for token in (0, 5):
        found = ask(path, "ov_table", OvTableParams(head, token, through=through), engine=engine)
        _ends(found, whole[token], 12)
        if c.d_vocab == c.d_vocab_out:
            assert found.own == pytest.approx(whole[token, token], abs=1e-9)
            check_ranks(found.own_rank, whole[token], whole[token, token])
        else:
            assert np.isnan(found.own)
            assert found.own_rank == -1
        _ends(ask(path, "ov_table", OvTableParams(head, token, "out", through=through), engine=engine), whole[:, token], 12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["key", "query"])
@pytest.mark.parametrize("behind", [None, Head(0, 1)])
def test_qk_rows_and_columns_are_those_of_the_whole_circuit(tmp_path: Path, name: str, side: str, behind: Head | None) -> None:
    path, c = made(tmp_path, name)
    head, engine, slow = Head(1, 2), Engine(ModelStore()), Whole(path, c)
    for distance in (0, 3):
        whole = slow.qk(head, distance, behind, side)
        base = QkTableParams(head, 5, "destination", 12, distance, behind, side)  # type: ignore[arg-type]
        found = ask(path, "qk_table", base, engine=engine)
        _ends(found, centred(whole)[5], 12)
        assert found.mean == pytest.approx(whole[5].mean(), abs=1e-9)
        _ends(ask(path, "qk_table", replace(base, given="source"), engine=engine), whole[:, 5], 12)
        bias = centred(slow.qk(head, distance, behind, side, bias=True))
        if "q" in c.biases:
            check_largest(found.bias_top_ids, bias, atol=1e-5)
            np.testing.assert_allclose(found.bias_top, np.sort(bias)[::-1][:12], atol=1e-5)
        else:
            assert found.bias_top.size == found.bias_top_ids.size == 0
        assert np.isnan(found.sigma) == (not c.smeared_keys)


@pytest.mark.parametrize("name", ["attention-only", "gpt2"])
def test_a_row_is_listed_from_its_largest_entry_to_its_smallest_and_the_bias_row_after_it(tmp_path: Path, name: str) -> None:
    path, c = made(tmp_path, name)
    head, slow = Head(1, 2), Whole(path, c)
    ov, qk = ask(path, "ov_table", OvTableParams(head, 5, k=4)), ask(path, "qk_table", QkTableParams(head, 5, k=4))
    for found, whole in ((ov, slow.ov(head, None)[5]), (qk, centred(slow.qk(head, 0, None, "key"))[5])):
        end, ids, values = (column.values.tolist() for column in found.table().columns)
        check_largest(ids[:4], whole, atol=1e-5)
        check_largest(ids[4:8][::-1], -whole, atol=1e-5)
        assert end[:8] == ["top"] * 4 + ["bottom"] * 4
        np.testing.assert_allclose(values[:8], whole[ids[:8]], atol=1e-5)
        biased = found is qk and "q" in c.biases
        assert end[8:] == ["bias"] * 4 * biased and ids[8:] == (qk.bias_top_ids.tolist() if biased else [])
        assert found.table().columns[2].unit == found.unit_of("top") == ("logit" if found is ov else "score")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("side", ["key", "query"])
@pytest.mark.parametrize("behind", [None, Head(0, 1)])
def test_all_tables_of_a_token_at_once_are_those_of_the_whole_circuits(
    tmp_path: Path, name: str, side: str, behind: Head | None
) -> None:
    path, c = made(tmp_path, name)
    head, slow, token = Head(1, 2), Whole(path, c), 5
    found = ask(path, "token_circuits", TokenCircuitsParams(head, token, 6, 3, behind, side))  # type: ignore[arg-type]
    ov, qk = slow.ov(head, behind), slow.qk(head, 3, behind, side)
    wanted = [ov[token], centred(qk)[token], ov[:, token], qk[:, token]]
    for i, row in enumerate(wanted):
        if i == 2 and c.d_vocab != c.d_vocab_out:
            assert (found.top_ids[i] == -1).all() and np.isnan(found.top[i]).all()
            continue
        np.testing.assert_allclose(found.top[i], np.sort(row)[::-1][:6], atol=1e-5)
        np.testing.assert_allclose(found.bottom[i], np.sort(row)[:6], atol=1e-5)
        np.testing.assert_allclose(row[found.top_ids[i]], found.top[i], atol=1e-5)
        assert found.sd[i] == pytest.approx(row.std(), rel=1e-9)
    bias = centred(slow.qk(head, 3, behind, side, bias=True))
    np.testing.assert_allclose(found.bias_top, np.sort(bias)[::-1][:6] if "q" in c.biases else [], atol=1e-5)
    assert found.table().n_rows == 4 * 2 * found.top.shape[1]
    if behind is not None:
        assert any(f"only the {side} is composed with {behind}" in w for w in found.conventions)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_the_effective_embedding_is_the_token_through_the_first_mlp(tmp_path: Path, name: str) -> None:
    path, c = made(tmp_path, name)
    slow, engine = Whole(path, c), Engine(ModelStore())
    x = slow.effective()
    found = ask(path, "effective_embedding", EffectiveEmbeddingParams(), engine=engine)
    np.testing.assert_allclose(found.values, x, atol=1e-9)
    cosine = (x * slow.W_E).sum(1) / np.linalg.norm(x, axis=1) / np.linalg.norm(slow.W_E, axis=1)
    np.testing.assert_allclose(found.cosine, cosine, atol=1e-9)
    head, embed = Head(1, 3), "after the first MLP"
    row = ask(path, "ov_table", OvTableParams(head, 7, embed=embed), engine=engine)
    _ends(row, slow.ov(head, x=x)[7], 12)
    _ends(ask(path, "ov_table", OvTableParams(head, 7, "out", embed=embed), engine=engine), slow.ov(head, x=x)[:, 7], 12)
    scores = slow.qk(head, 2, x=x)
    for given, wanted in (("destination", centred(scores)[7]), ("source", scores[:, 7])):
        p = QkTableParams(head, 7, given, distance=2, embed=embed)  # type: ignore[arg-type]
        _ends(ask(path, "qk_table", p, engine=engine), wanted, 12)
    with pytest.raises(Refused, match="before the first MLP"):
        ask(path, "ov_table", OvTableParams(head, 7, through=Head(0, 0), embed=embed), engine=engine)
    f, keys = slow.factors(head), slow.moved(slow.tokens, Head(0, 0))  # keys from a head that reads before the first MLP
    mixed = (x[7] @ f["Q"]) @ (keys @ f["K"]).T * c.score_scale
    _ends(ask(path, "qk_table", QkTableParams(head, 7, behind=Head(0, 0), embed=embed), engine=engine), centred(mixed), 12)


def test_uncentred_conventions_give_the_same_columns(tmp_path: Path) -> None:
    path, c = made(tmp_path, "attention-only")
    found = ask(path, "ov_table", OvTableParams(Head(0, 1), 9, "out"), Conventions(centre=False, dtype="float64"))
    _ends(found, Whole(path, c).ov(Head(0, 1))[:, 9], 12)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd"])
def test_no_row_depends_on_the_gauge(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    plain, other = (directory(tmp_path / n, config, tokenizer=False) for n in "ab")
    as_double(plain)
    gauged(other, config)
    for p in (
        OvTableParams(Head(1, 2), 3, through=Head(0, 1)),
        OvTableParams(Head(1, 2), 3, "out"),
        QkTableParams(Head(1, 2), 3, distance=2, behind=Head(0, 0)),
        QkTableParams(Head(1, 2), 3, "source"),
    ):
        kind = "ov_table" if isinstance(p, OvTableParams) else "qk_table"
        a, b = ask(plain, kind, p), ask(other, kind, p)
        np.testing.assert_array_equal(a.top_ids, b.top_ids)
        np.testing.assert_allclose(a.top, b.top, atol=1e-5)
        np.testing.assert_allclose(a.bottom, b.bottom, atol=1e-5)


@pytest.mark.parametrize("name", ["attention-only", "gpt2", "llama", "odd"])
def test_no_top_token_and_no_entry_depends_on_the_gauge(tmp_path: Path, name: str) -> None:
    plain, other = (directory(tmp_path / n, CONFIGS[name], tokenizer=False) for n in "ab")
    as_double(plain)
    gauged(other, CONFIGS[name])
    a, b = (ask(path, "ov_top_tokens", OvTopTokensParams(Head(1, 2), 3)) for path in (plain, other))
    np.testing.assert_array_equal(a.ids, b.ids)
    np.testing.assert_allclose(a.values, b.values, atol=1e-5)
    all_tables = TokenCircuitsParams(Head(1, 2), 3, 4, 2, Head(0, 1), "query")
    a, b = (ask(path, "token_circuits", all_tables) for path in (plain, other))
    np.testing.assert_array_equal(a.top_ids, b.top_ids)
    np.testing.assert_allclose(a.top, b.top, atol=1e-5)
    np.testing.assert_allclose(a.bottom, b.bottom, atol=1e-5)
    for circuit in ("OV", "QK"):
        p = LargestEntriesParams(Head(1, 1), circuit, 20, 2, Head(0, 0))  # type: ignore[arg-type]
        a, b = (ask(path, "largest_entries", p) for path in (plain, other))
        np.testing.assert_array_equal(a.rows_ids, b.rows_ids)
        np.testing.assert_array_equal(a.cols_ids, b.cols_ids)
        np.testing.assert_allclose(a.values, b.values, atol=1e-5)
        assert a.skipped == pytest.approx(b.skipped, abs=1e-3)


@pytest.mark.parametrize("k", [1, 3, 10])
@pytest.mark.parametrize("n", [3, 127, 128, 1000, 5000])
def test_the_top_of_rows_is_exact(k: int, n: int) -> None:
    k = min(k, n)
    values = torch.randint(0, 50, (7, n), generator=torch.Generator().manual_seed(n)).double()  # many ties
    values[3] = -values[3]
    rows = torch.nn.functional.pad(values, (0, -n % BLOCK), value=99.0)
    assert padded(values).shape == rows.shape
    found, ids = top_of_rows(rows.clone(), n, k)
    np.testing.assert_array_equal(found, torch.topk(values, k, dim=1).values)
    np.testing.assert_array_equal(torch.gather(values, 1, ids), found)
    assert all(len(set(row)) == k for row in ids.tolist())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("through", [None, Head(0, 1)])
@pytest.mark.parametrize("centre", [True, False])
def test_top_tokens_of_every_source_are_those_of_the_whole_circuit(
    tmp_path: Path, name: str, through: Head | None, centre: bool
) -> None:
    # uncentred, W_U keeps its mean in the file's conventions; norms that centre what is written still do so for all readers
    path, c = made(tmp_path, name, norm="rms" if name == "gpt2" and not centre else CONFIGS[name].norm)
    conventions = Conventions(centre=centre or c.norm == "layer", dtype="float64")
    found = ask(path, "ov_top_tokens", OvTopTokensParams(Head(1, 2), 4, through), conventions)
    whole = centred(Whole(path, c).ov(Head(1, 2), through))
    assert found.ids.shape == (len(whole), 4)
    check_largest(found.ids, whole, atol=1e-5)
    np.testing.assert_allclose(found.values, np.take_along_axis(whole, found.ids, 1), atol=1e-5)
    assert found.ids.dtype == np.int32
    assert found.table().n_rows == c.d_vocab


@pytest.mark.parametrize("through", [None, Head(0, 1)])
def test_top_tokens_of_some_sources_are_those_of_all(tmp_path: Path, through: Head | None) -> None:
    path, c = made(tmp_path, "gpt2")
    engine = Engine(ModelStore())
    for embed in ("normalised tokens", "tokens", *["after the first MLP"] * (through is None)):
        whole = ask(path, "ov_top_tokens", OvTopTokensParams(Head(1, 2), 4, through, embed), engine=engine)  # type: ignore[arg-type]
        all_out = OvTopTokensParams(Head(1, 2), c.d_vocab_out, through, embed)  # type: ignore[arg-type]
        listed = ask(path, "ov_top_tokens", all_out, engine=engine)
        every = np.take_along_axis(listed.values, np.argsort(listed.ids), 1)  # [source, out]
        for first, count, stop in ((0, 5, 5), (7, 3, 10), (c.d_vocab - 2, 100, c.d_vocab), (9, 0, c.d_vocab)):
            params = OvTopTokensParams(Head(1, 2), 4, through, embed, first, count)  # type: ignore[arg-type]
            some = ask(path, "ov_top_tokens", params, engine=engine)
            np.testing.assert_allclose(some.values, whole.values[first:stop], atol=1e-6)
            check_largest(some.ids, every[first:stop], atol=1e-6)
            assert some.table().columns[0].values[0] == first
    with pytest.raises(BadInput):
        ask(path, "ov_top_tokens", OvTopTokensParams(Head(1, 2), first=c.d_vocab), engine=engine)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("circuit", ["OV", "QK"])
def test_the_largest_entries_are_those_of_the_whole_circuit(tmp_path: Path, name: str, circuit: str) -> None:
    path, c = made(tmp_path, name)
    slow, head, engine = Whole(path, c), Head(1, 2), Engine(ModelStore())
    for through, distance in ((None, 0), (None, 3), (Head(0, 1), 2)):
        whole = centred(slow.ov(head, through) if circuit == "OV" else slow.qk(head, distance, through))
        k = min(50, whole.size)
        p = LargestEntriesParams(head, circuit, k, distance, through)  # type: ignore[arg-type]
        found = ask(path, "largest_entries", p, engine=engine)
        places = found.rows_ids * whole.shape[1] + found.cols_ids
        assert found.n_vocab == whole.shape
        assert found.rows_ids.dtype == found.cols_ids.dtype == np.int64
        check_largest(places, whole.ravel(), atol=1e-5)
        np.testing.assert_allclose(found.values, whole.ravel()[places], atol=1e-5)
        assert 0 <= found.skipped < 1
        assert found.table().n_rows == k


def test_lengths_bound_every_entry_and_do_not_depend_on_the_split() -> None:
    generator = torch.Generator().manual_seed(3)
    A, B = (torch.randn(n, 8, generator=generator).double() for n in (50, 70))
    A[:, 3] = A[:, 4]  # rank 7
    A[:, 7] *= 0.01
    B[5] = 0
    S = torch.randn(8, 8, generator=generator).double()
    a, b, slack = lengths(A, B, NullContext())
    assert bool((torch.outer(a, b) * (1 + 1e-9) + slack >= A @ B.T).all())
    for x, y in zip(lengths(A @ S, B @ torch.linalg.inv(S).T, NullContext()), (a, b), strict=False):
        torch.testing.assert_close(x, y, atol=1e-6, rtol=1e-6)
    assert float((a**2).sum()) == pytest.approx(float((b**2).sum()))  # both are the sum of singular values
    assert float((a**2).sum()) == pytest.approx(float(torch.linalg.svdvals(A @ B.T).sum()))


def test_bounds_skip_what_they_can_and_lose_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largest, "SHOWN", 1)
    path, c = made(tmp_path, "attention-only", d_vocab=6000, d_vocab_out=6000)
    tensors = load_file(path / "model.safetensors")
    size = torch.exp(torch.randn(6000, generator=torch.Generator().manual_seed(1)))
    tensors["embed.W_E"] *= size[:, None]
    tensors["unembed.W_U"] *= size.flip(0)
    save_file(tensors, path / "model.safetensors")
    partial: list[Any] = []

    class Watching(NullContext):
        def partial(self, result: Any) -> None:
            partial.append(result)

    request = Request.named("largest_entries", LargestEntriesParams(Head(0, 1)), Subject(ModelRef(f"file:{path}")))
    found: Any = Engine(ModelStore()).answer(request, Watching()).result
    whole = centred(Whole(path, c).ov(Head(0, 1)))
    check_listed(found.rows_ids * 6000 + found.cols_ids, 100, whole.ravel())
    assert found.skipped > 0.9
    assert partial
    assert all(0 < p.done < 1 and len(p.values) == 100 and p.values[-1] <= found.values[-1] for p in partial)


def test_nothing_is_lost_where_the_bound_is_the_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(largest, "ROWS", 4)
    monkeypatch.setattr(largest, "COLUMNS", 8)
    generator = torch.Generator().manual_seed(5)
    direction = torch.tensor([[3.0, 4.0]]).double()  # rank 1: an entry is the product of the lengths, or minus it
    A, B = (torch.randn(n, 1, generator=generator).double() * direction for n in (200, 300))
    search = largest._Search(A, B, 150, NullContext())
    assert all(done < 1 for done in search.tiles(NullContext()))
    found, whole = search.result((), 1.0), A @ B.T
    check_listed(found.rows_ids * 300 + found.cols_ids, 150, whole.numpy().ravel())
    assert found.skipped > 0.5


def test_degenerate_models_have_tables(tmp_path: Path) -> None:
    path, c = made(tmp_path, "attention-only", d_vocab=3, d_vocab_out=3, n_layers=1)
    tensors = {n: v.half() for n, v in load_file(path / "model.safetensors").items()}
    tensors["layers.0.W_O"][0] = 0
    tensors["layers.0.W_K"][0] = 0
    save_file(tensors, path / "model.safetensors")
    for head in (Head(0, 0), Head(0, 1)):
        ov, qk = ask(path, "ov_table", OvTableParams(head, 1)), ask(path, "qk_table", QkTableParams(head, 1))
        _ends(ov, Whole(path, c).ov(head)[1], 3) if head.head else None
        assert ov.top.shape == qk.top.shape == (3,)
        assert np.isfinite(ov.top).all()
        assert head.head or not ov.top.any()
        assert ov.table().n_rows == qk.table().n_rows == 6
        assert ask(path, "ov_top_tokens", OvTopTokensParams(head)).ids.shape == (3, 3)
        for circuit in ("OV", "QK"):
            most = ask(path, "largest_entries", LargestEntriesParams(head, circuit))  # type: ignore[arg-type]
            assert len({*zip(most.rows_ids.tolist(), most.cols_ids.tolist(), strict=True)}) == 9
            assert np.isfinite(most.values).all()
            assert head.head or not most.values.any()


def test_what_cannot_be_is_refused_with_the_reason(tmp_path: Path) -> None:
    gpt2, plain = made(tmp_path, "gpt2")[0], made(tmp_path, "attention-only")[0]
    effective = "after the first MLP"
    with pytest.raises(Refused, match="no MLP"):
        ask(plain, "ov_table", OvTableParams(Head(1, 0), embed=effective))
    with pytest.raises(Refused, match="before the first MLP"):
        ask(gpt2, "qk_table", QkTableParams(Head(0, 0), embed=effective))
    with pytest.raises(Refused, match="earlier layer"):
        ask(gpt2, "ov_table", OvTableParams(Head(1, 0), through=Head(1, 1)))
    with pytest.raises(Refused, match="stream"):
        ask(made(tmp_path, "post-residual")[0], "qk_table", QkTableParams())
    with pytest.raises(BadInput, match="token"):
        ask(plain, "ov_table", OvTableParams(token=260))
    with pytest.raises(BadInput, match="distance"):
        ask(plain, "qk_table", QkTableParams(distance=48))
    with pytest.raises(BadInput, match="k is out of bounds"):
        ask(plain, "largest_entries", LargestEntriesParams(k=0))
    with pytest.raises(BadInput, match="head"):
        ask(plain, "ov_table", OvTableParams(Head(0, 9)))
