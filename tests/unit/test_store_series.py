"""How many models stay open: a series of small ones whole, large ones only the last few."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import save_file

from circuitlab.engine.engine import Engine
from circuitlab.engine.open_model import BESIDES
from circuitlab.engine.store import ROOM, ModelStore
from circuitlab.errors import BadModel
from circuitlab.model.loading import Opened, open_model
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.model.weights import Weights
from tests.models import FULL, TINY, directory, random_tensors

N = 29


@pytest.fixture
def refs(tmp_path: Path) -> list[ModelRef]:
    """The final weights and the checkpoints of a series."""
    folder = directory(tmp_path / "m", tokenizer=False)
    (folder / "checkpoints").mkdir()
    for i in range(N):
        save_file(random_tensors(TINY, i, 0.35), folder / "checkpoints" / f"step-{i * 1000:06d}.safetensors")
    return [ModelRef(f"file:{folder}"), *(ModelRef(f"file:{folder}", i) for i in range(N))]


def as_large_as(n_parameters: int) -> object:
    """An opener of models that say to have so many parameters."""

    def opener(path: Path, keep: str, assume: dict[str, str], **at: int) -> Opened:
        opened = open_model(path, keep, assume, **at)  # type: ignore[arg-type]
        weights: Weights = opened.weights
        object.__setattr__(weights.config, "n_parameters", lambda: n_parameters)
        return opened

    return opener


def test_a_series_of_small_models_stays_open_and_is_read_once(refs: list[ModelRef]) -> None:
    store = ModelStore()
    models = [store.open(ref) for ref in refs]
    assert [store.peek(ref) for ref in refs] == models
    assert len({model.key for model in models}) == N + 1  # answers of two checkpoints are never mistaken for each other


def test_models_as_large_as_the_shipped_ones_stay_and_large_ones_do_not(refs: list[ModelRef]) -> None:
    shipped = ModelStore(opener=as_large_as(4_700_000 // 4))  # type: ignore[arg-type]
    for ref in refs:
        shipped.open(ref).weights(Conventions())
    assert all(shipped.peek(ref) for ref in refs)
    large = ModelStore(opener=as_large_as(124_000_000))  # type: ignore[arg-type]
    for ref in refs:
        large.open(ref)
    assert [large.peek(ref) is not None for ref in refs] == [False] * (N - 2) + [True] * 3


def test_what_is_used_stays_while_large_models_pass_by(refs: list[ModelRef]) -> None:
    store = ModelStore(opener=as_large_as(10**9))  # type: ignore[arg-type]
    store.open(refs[0])
    for ref in refs[1:]:
        assert store.use(refs[0]) is not None
        store.open(ref)
    assert [store.peek(ref) is not None for ref in refs] == [True, *[False] * (N - 2), True, True]
    assert store.use(refs[1]) is None and store.peek(refs[1]) is None


def test_the_bound_counts_presentations_and_follows_the_budget(refs: list[ModelRef], tmp_path: Path) -> None:
    store = ModelStore()
    model = store.open(refs[0])
    assert model.nbytes == 4 * TINY.n_parameters() + BESIDES
    model.weights(Conventions(dtype="float64"))
    assert model.nbytes == 8 * TINY.n_parameters() + BESIDES
    folded = store.open(ModelRef(f"file:{directory(tmp_path / 'full', FULL)}"))
    folded.weights(Conventions())
    assert folded.nbytes == 8 * FULL.n_parameters() + BESIDES
    assert store.room == 2**29  # an eighth of 4 GiB
    Engine(store, 2**30)
    assert store.room == ROOM
    Engine(store, 2**36)
    assert store.room == 2**33
    limit = ModelStore(room=10 * (4 * TINY.n_parameters() + BESIDES))
    for ref in refs:
        limit.open(ref)
    assert [limit.peek(ref) is not None for ref in refs] == [False] * (N - 9) + [True] * 10


def test_a_checkpoint_is_called_by_its_step(refs: list[ModelRef]) -> None:
    store = ModelStore()
    assert store.open(refs[0]).name == "m"
    assert store.open(refs[15]).name == "m · step 14,000"
    assert store.open(replace(refs[0], checkpoint=-1)).name == "m · step 28,000"
    with pytest.raises(BadModel):
        store.open(replace(refs[0], checkpoint=N))
