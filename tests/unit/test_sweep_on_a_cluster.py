"""A sweep on Dask: the same tables bit for bit as in this process, also where a worker is killed in the midst of it."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import circuitlab.api as lab
from circuitlab.analysis.base import NullContext
from circuitlab.errors import BadMachine, UsageError
from circuitlab.sweep import cluster
from circuitlab.sweep.run import crew_of, run
from circuitlab.sweep.spec import spec_of
from tests.unit.test_sweep import MACHINE, TEXTS, declared, swept

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture(scope="module")
def scheduler() -> Iterator[Any]:
    """A scheduler with two processes."""
    options: dict[str, Any] = {"scheduler_kwargs": cluster.ALONE, "memory_limit": 0}
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, **options) as local:
        yield local


def same(tmp_path: Path, one: str, other: str) -> None:
    for name in ("table.csv", "summary.csv"):
        assert (tmp_path / one / name).read_bytes() == (tmp_path / other / name).read_bytes()


def test_the_tables_are_those_of_this_process(tmp_path: Path, scheduler: Any) -> None:
    data = declared(tmp_path, arrays=True)
    swept(tmp_path, data)
    swept(tmp_path, data, "dask", crew=crew_of(MACHINE, scheduler=scheduler.scheduler_address))
    same(tmp_path, "dask", "out")
    workers = set(lab.Sweep(tmp_path / "dask").cells()["worker"])
    assert workers and not any(one.endswith(f":{os.getpid()}") for one in workers)


def test_a_killed_worker_loses_nothing(tmp_path: Path, scheduler: Any) -> None:
    data = declared(tmp_path, prompts=[{"texts": [f"{text}{i}" for i in range(6) for text in TEXTS]}])
    swept(tmp_path, data)
    with distributed.Client(scheduler, set_as_default=False) as client:
        pids = sorted(client.run(os.getpid).values())

    class Killing(NullContext):
        killed = 0

        def tick(self, done: int, total: int, text: str = "") -> None:
            if 3 <= done < total and not self.killed:
                self.killed = pids[0]
                os.kill(self.killed, signal.SIGKILL)

    ctx = Killing()
    swept(tmp_path, data, "dask", crew=crew_of(MACHINE, scheduler=scheduler.scheduler_address), ctx=ctx)
    assert ctx.killed
    same(tmp_path, "dask", "out")


def test_a_worker_without_the_models_has_them_from_the_shelf(tmp_path: Path, scheduler: Any) -> None:
    data = declared(tmp_path, prompts=[{"texts": TEXTS[:1]}])
    swept(tmp_path, data)
    shelved = replace(MACHINE, shelf=tmp_path / "shelf")
    crew = crew_of(shelved, scheduler=scheduler.scheduler_address)

    def without(engine: Any) -> Any:
        shutil.move(tmp_path / "gpt2", tmp_path / "elsewhere")
        return crew(engine)

    run(spec_of(data, tmp_path), tmp_path / "dask", shelved, without)
    same(tmp_path, "dask", "out")


def test_a_worker_without_the_model_says_so_in_its_rows(tmp_path: Path, scheduler: Any) -> None:
    data = declared(tmp_path, models={"open": ["gpt2"]}, analyses=[{"name": "token_loss"}])

    hidden = tmp_path / "hidden"
    shutil.copytree(tmp_path / "gpt2", hidden)
    crew = crew_of(MACHINE, scheduler=scheduler.scheduler_address)

    def without(engine: Any) -> Any:
        shutil.rmtree(tmp_path / "gpt2")
        return crew(engine)

    table = swept(tmp_path, data, crew=without)
    assert set(table["status"]) == {"refused"} and table["error"].str.contains("gpt2").all()
    shutil.copytree(hidden, tmp_path / "gpt2")
    assert set(swept(tmp_path, data, retry=True, crew=crew)["status"]) == {"done"}


def test_no_scheduler_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "WITHIN", 0.5)
    with pytest.raises(BadMachine, match="does not answer"):
        swept(tmp_path, declared(tmp_path), crew=crew_of(MACHINE, scheduler="tcp://127.0.0.1:9"))
    with pytest.raises(UsageError):
        swept(tmp_path, declared(tmp_path), crew=crew_of(MACHINE, scheduler="no address at all"))


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="needs a POSIX system: signals that are blocked")
def test_the_workers_that_are_started_here_hear_no_interrupt() -> None:
    """It is for the sweep to end them: an interrupted worker prints a traceback, and another takes its place."""
    own = cluster.Cluster(MACHINE, size=1)
    with own._stack, own._client() as client:
        blocked = client.run(lambda: signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
    assert list(blocked.values()) == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
