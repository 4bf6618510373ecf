"""A talk of five steps on two tiny models: several panels, a cut with its reference, a checkpoint, a chosen head, a film."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from tests.models import FULL, directory
from tests.series_files import keep_scaled

TEXT = "ab cab ab"
STEPS = (
    Step(
        "It looks back",
        "A *step* of three panels.",
        Setup(model="mine", prompt=TEXT, heads=("L1H1",), destination=5, show=("attention", "predictions", "heads")),
    ),
    Step(
        "Without it",
        "The loss is {loss}.",
        Setup(cut=("L1H1",), pin=(Other(Setup(cut=()), "before"),), show=("predictions", "attention")),
        (Value("loss", "token_loss", {}, "mean", ".2f"),),
        "wait here",
    ),
    Step(
        "Early, and the best head", "", Setup(cut=(), pin=(), checkpoint=3, heads=("best prefix_matching",), show=("attention",))
    ),
    Step("The film", "", Setup(checkpoint="final", show=("attention", "predictions"), play=(3, "final"))),
    Step("Another model", "", Setup(model="other", prompt=TEXT, heads=("L0H2",), show=("attention",), alone=True)),
)


def talk(folder: Path, steps: tuple[Step, ...] = STEPS) -> Path:
    """The session `FOLDER/talks/talk.circuitlab` of the models `FOLDER/mine` and `FOLDER/other`."""
    models = {"mine": directory(folder / "mine"), "other": directory(folder / "other", FULL)}
    keep_scaled(models["mine"], {3: 0.5, 5: 0.7, 9: 0.9})
    refs = {name: ModelRef(f"file:{path}") for name, path in models.items()}
    entries = {name: ModelEntry(ref, ModelStore().sha256(ref)) for name, ref in refs.items()}
    (folder / "talks").mkdir(parents=True)
    path = folder / "talks" / "talk.circuitlab"
    now = Setup(model="mine", prompt=TEXT, heads=("L0H2",), show=("attention",))
    path.write_bytes(bytes_of(Session(entries, now, Story("A talk", steps)), path.parent))
    return path


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the talk and its models, not to be changed."""
    folder = tmp_path_factory.mktemp("talk")
    talk(folder)
    return folder


@pytest.fixture
def path(original: Path, tmp_path: Path) -> Path:
    """The talk in a copy of that folder: `path.parents[1]`."""
    shutil.copytree(original, tmp_path / "here")
    return tmp_path / "here" / "talks" / "talk.circuitlab"


@contextmanager
def computed() -> Iterator[list[Request]]:
    """The requests that engines compute meanwhile: those whose analysis runs, not those that are held, cached or refused."""
    requests: list[Request] = []
    compute = Engine._compute

    def noted(self: Engine, cache: object, request: Request, *args: object) -> object:
        self.check(request)
        requests.append(request)
        return compute(self, cache, request, *args)  # type: ignore[arg-type]

    with mock.patch.object(Engine, "_compute", noted):
        yield requests
