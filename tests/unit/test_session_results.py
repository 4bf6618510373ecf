"""Results inside a session: the file, what it needs, and a session whose models are gone."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import circuitlab.api as lab
from circuitlab.analysis import _registry
from circuitlab.analysis.base import NullContext, analyses
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import read_stored, stored_bytes
from circuitlab.errors import BadInput, BadModel, Cancelled, CircuitLabError
from circuitlab.figures.contracts.panel import panels, view_types
from circuitlab.gui.sessions.file_work import FRONTS, Searcher, Staged
from circuitlab.gui.sessions.models_dialog import about
from circuitlab.model.subject import ModelRef
from circuitlab.report import session_results
from circuitlab.report.saved_session import SavedSession, opened_session
from circuitlab.session_files import container
from circuitlab.session_files.container import container_bytes
from circuitlab.session_files.results import INDEX, SessionFile, answer_member, file_bytes, read_file, read_results
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Other, Setup
from circuitlab.story.story import Step, Story
from circuitlab.story.values import Value
from tests.figure_prints import figure_print
from tests.models import directory
from tests.series_files import keep_scaled

TEXT = "ab cab ab"
SHOWN = {0: ("attention", "predictions", "heads"), 1: ("attention",), 2: ("composition", "predictions"), 3: ("attention",)}


def talk(folder: Path) -> Path:
    """A session of a model with a checkpoint beside it: `FOLDER/talks/talk.circuitlab`, `FOLDER/mine`."""
    model = directory(folder / "mine")
    keep_scaled(model, {3: 0.5})
    (folder / "talks").mkdir(parents=True)
    ref = ModelRef(f"file:{model}")
    steps = (
        Step("It looks back", setup=Setup(model="mine", prompt=TEXT, heads=("L1H1",), destination=5, show=SHOWN[1])),
        Step(
            "Without it",
            setup=Setup(cut=("L1H1",), pin=(Other(Setup(cut=()), "before"),), show=SHOWN[2]),
            values=(Value("loss", "token_loss", {}, "mean", ".2f"),),
        ),
        Step("Early", setup=Setup(cut=(), pin=(), checkpoint=3, show=SHOWN[3])),
        Step("Of another", setup=Setup(model="lost", prompt=TEXT)),
    )
    models = {"mine": ModelEntry(ref, ModelStore().sha256(ref)), "lost": ModelEntry(ModelRef("file:/nowhere/m"), "77ab")}
    now = Setup(model="mine", prompt="ab", heads=("L0H2",), show=SHOWN[0])
    path = folder / "talks" / "talk.circuitlab"
    path.write_bytes(bytes_of(Session(models, now, Story("A talk", steps)), path.parent))
    return path


def computed(path: Path) -> SessionFile:
    """The session of a file with its results, computed by a fresh engine."""
    return opened_session(path, Engine(ModelStore())).with_results(FRONTS)


def prints(session: SavedSession) -> dict[tuple[int, str], str]:
    """The hash of every figure that the places of `talk` show."""
    places = (session.now, *session.steps)
    return {(i, name): figure_print(places[i].figure(name).figure) for i, names in SHOWN.items() for name in names}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[tuple[int, str], str]]:
    """A folder with the talk, its results inside, and the figures that it shows, where its model is there."""
    folder = tmp_path_factory.mktemp("made")
    path = talk(folder)
    file = computed(path)
    before = prints(opened_session(path, Engine(ModelStore())))
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    return folder, before


@pytest.fixture
def stored(made: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy of the talk with results, without its model."""
    path = tmp_path / "elsewhere" / "talk.circuitlab"
    path.parent.mkdir()
    shutil.copyfile(made[0] / "talks" / "talk.circuitlab", path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


# -- the file -------------------------------------------------------------------------------------------------------------------


def test_the_text_inside_is_that_of_the_file_without_results(made: tuple[Path, Any]) -> None:
    path = made[0] / "talks" / "talk.circuitlab"
    file = read_file(path)
    inside = members(path)
    assert next(iter(inside)) == "session.json" and inside["session.json"] == bytes_of(file.session, path.parent)
    assert file_bytes(file.session, path.parent, None) == inside["session.json"]


def test_a_file_with_results_is_read_and_written_alike(stored: Path) -> None:
    file = read_file(stored)
    assert file.results is not None
    data = file_bytes(file.session, stored.parent, file.results)
    assert data == stored.read_bytes()
    (stored.parent / "again.circuitlab").write_bytes(data)
    again = read_file(stored.parent / "again.circuitlab")
    assert again.session == file.session and again.results is not None
    for name in ("entries", "hashes", "places", "unknown"):
        assert getattr(again.results, name) == getattr(file.results, name)


def test_equal_sessions_give_equal_bytes(made: tuple[Path, Any]) -> None:
    path = made[0] / "talks" / "talk.circuitlab"
    twice = [computed(path) for _ in range(2)]
    one, other = (file_bytes(file.session, path.parent, file.results) for file in twice)
    assert one == other == path.read_bytes()


def test_the_file_is_as_large_as_its_arrays(stored: Path) -> None:
    file = read_file(stored)
    assert file.results is not None and file.results.nbytes > 10_000
    infos = zipfile.ZipFile(stored).infolist()
    assert all(info.compress_type == zipfile.ZIP_STORED for info in infos if info.filename.endswith(".npz"))
    rest = sum(info.compress_size for info in infos if not info.filename.endswith(".npz"))
    names = sum(76 + 2 * len(info.filename) for info in infos) + 22
    assert stored.stat().st_size == file.results.nbytes + rest + names
    session = opened_session(stored, Engine(ModelStore()))
    arrays = sum(answer.result.nbytes for answer in session.stored.answers)
    n = len(session.stored.answers)
    assert n == len(file.results.entries) and file.results.nbytes <= arrays + 6000 * n


def test_what_cannot_be_stored_is_said_in_its_place(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = read_results(stored)
    assert results is not None
    assert [len(place.lacking) for place in results.places] == [0, 0, 0, 0, 1]
    assert "lost" in results.places[4].lacking[0] and not results.places[4].answers
    assert main(["session", str(stored), "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["results"]
    assert table["answers"] == len(results.entries) and table["bytes"] == results.nbytes
    assert [place["answers"] for place in table["places"]] == [len(place.answers) for place in results.places]
    assert main(["session", str(stored)]) == 0
    assert "lost" in capsys.readouterr().out.partition("results:")[2]


def test_no_path_of_the_machine_is_in_the_file(made: tuple[Path, Any]) -> None:
    here = str(made[0]).encode()
    for name, data in members(made[0] / "talks" / "talk.circuitlab").items():
        inside = members_of(data) if name.endswith(".npz") else {name: data}
        assert not any(here in one or here.decode().encode("utf-32-le") in one for one in inside.values()), name


def members_of(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_what_this_version_does_not_know_is_kept(stored: Path) -> None:
    inside = members(stored)
    index = json.loads(inside[INDEX]) | {"tomorrow": {"a": [1]}}
    stored.write_bytes(container_bytes(inside | {INDEX: json.dumps(index).encode(), "tomorrow/new.bin": b"\0\1"}))
    session = opened_session(stored, Engine(ModelStore()))
    file = session.with_results(FRONTS)
    stored.write_bytes(file_bytes(file.session, stored.parent, file.results))
    again = members(stored)
    assert json.loads(again[INDEX])["tomorrow"] == {"a": [1]} and again["tomorrow/new.bin"] == b"\0\1"


def renamed(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda inside: inside | {name: b"x"}


def without(name: str) -> Callable[[dict[str, bytes]], dict[str, bytes]]:
    return lambda inside: {n: data for n, data in inside.items() if n != name}


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (renamed("../out.txt"), "../out.txt"),
        (renamed("results/../../out.txt"), "results/../../out.txt"),
        (renamed("/etc/passwd"), "/etc/passwd"),
        (renamed("C:/windows"), "C:/windows"),
        (renamed("results\\x"), "results"),
        (renamed("results/" + "0" * 64 + ".npz"), "results/000"),
        (without(INDEX), INDEX),
        (without("session.json"), "session.json"),
        (lambda inside: inside | {INDEX: b"[]"}, INDEX),
        (lambda inside: inside | {INDEX: b'{"answers": {"a": 1}}'}, INDEX),
        (lambda inside: inside | {f"x/{i}": b"" for i in range(container.MOST + 1)}, "zip"),
        (lambda inside: inside | {"session.json": b" " * (container.LARGEST + 1)}, "session.json"),
    ],
)
def test_members_that_are_not_as_they_are_written_are_named(stored: Path, change: Any, place: str) -> None:
    stored.write_bytes(container_bytes(change(members(stored))))
    with pytest.raises(BadInput) as refused:
        read_file(stored)
    assert place in f"{refused.value.what} {refused.value.expected} {refused.value.got}"


def test_results_beyond_the_limit_are_refused_unread(stored: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container, "LARGEST_REST", 10_000)
    with pytest.raises(BadInput, match="results/"):
        read_file(stored)


def test_what_has_no_room_in_the_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = computed(talk(tmp_path)).results
    monkeypatch.setattr(session_results, "ROOM", 20_000)
    part = computed(tmp_path / "talks" / "talk.circuitlab").results
    assert whole is not None and part is not None and 0 < len(part.entries) < len(whole.entries)
    assert {key: part.data(key) for key in part.entries} == {key: whole.data(key) for key in part.entries}
    assert any("no room" in line for place in part.places for line in place.lacking)


def test_a_bomb_is_not_unpacked(stored: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members(stored).items():
            archive.writestr(name, data)
        with archive.open("models/mine/bomb", "w") as member:
            for _ in range(300):
                member.write(bytes(2**20))
    stored.write_bytes(out.getvalue())
    with pytest.raises(BadInput, match="bomb"):
        read_file(stored)


@pytest.mark.parametrize("lie", [1000, 10**6, 2**31])
def test_a_member_that_is_larger_than_it_says_is_refused(stored: Path, lie: int) -> None:
    data = bytearray(stored.read_bytes())
    entry = data.rfind(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, lie)
    stored.write_bytes(data)
    with pytest.raises(BadInput):
        file = read_file(stored)
        assert file.results is not None
        dict(file.results.container.each(file.results.container.sizes))


def test_a_file_that_was_replaced_is_not_read_for_the_one_before(stored: Path) -> None:
    results = read_results(stored)
    assert results is not None
    stored.write_bytes(stored.read_bytes() + b" ")
    with pytest.raises(BadInput):
        results.data(next(iter(results.entries)))


# -- without the model ----------------------------------------------------------------------------------------------------------


def test_every_stored_figure_is_the_same_without_the_model(made: tuple[Path, Any], stored: Path) -> None:
    session = opened_session(stored, Engine(ModelStore()))
    assert set(session.located.missing) == {"mine", "lost"}
    assert prints(session) == made[1]
    assert session.steps[1].compute("token_loss").provenance.stored


def test_a_figure_says_that_it_is_stored(made: tuple[Path, Any], stored: Path) -> None:
    here = lab.session(made[0] / "talks" / "talk.circuitlab", Engine(ModelStore()))
    away = lab.session(stored, Engine(ModelStore()))
    live, kept = (set(one.now.figure("attention").figure.caption_parts) for one in (here, away))
    assert live < kept and any("stored" in part for part in kept - live)


def test_what_is_not_stored_says_why(stored: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    session = opened_session(stored, Engine(ModelStore()))
    with pytest.raises(BadModel, match="not on this machine"):
        session.now.figure("bigram")
    with pytest.raises(BadModel, match="lost"):
        _ = session.steps[3].state
    assert main(["figure", "bigram", "--at", str(stored), "-o", str(tmp_path / "a.png")]) == 3
    assert "not on this machine" in capsys.readouterr().err
    assert main(["figure", "attention", "--at", f"{stored}#1", "-o", str(tmp_path / "a.png")]) == 0
    assert main(["figure", "attention", "--at", f"{stored}#3", "-o", str(tmp_path / "b.png")]) == 0


def test_a_model_of_other_weights_is_never_mixed_with_what_is_stored(made: tuple[Path, Any], stored: Path) -> None:
    other = directory(stored.parent.parent / "mine", d_model=32)
    session = opened_session(stored, Engine(ModelStore()))
    assert session.located.changed == {"mine": ModelRef(f"file:{other}")}
    assert prints(session) == made[1]
    with pytest.raises(BadModel, match="not on this machine"):
        session.now.figure("bigram")
    assert session.now.state.model.source.startswith("stored:")


def test_what_was_autosaved_finds_the_results_of_its_file(stored: Path) -> None:
    autosaved = Staged(stored, read_file(stored).session, stored.parent, unsaved=True)
    staged = Searcher(Engine(ModelStore()), view_types()).find(autosaved)
    assert staged.missing == ("mine", "lost") and staged.with_results == ("mine",)


@pytest.mark.parametrize("damage", ["another", "nothing", "a byte"])
def test_a_damaged_answer_is_left_out_alone_and_told(
    made: tuple[Path, Any], stored: Path, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    inside, results = members(stored), read_results(stored)
    assert results is not None
    now = [key for key in results.places[0].answers if results.entries[key].analysis == "attention"]
    name, other = answer_member(now[0]), next(n for n in inside if n.endswith(".npz") and n != answer_member(now[0]))
    data = bytearray(stored.read_bytes())
    if damage == "a byte":
        data[data.index(inside[name][:200]) + len(inside[name]) // 2] ^= 255
        stored.write_bytes(data)
    else:
        stored.write_bytes(container_bytes(inside | {name: inside[other] if damage == "another" else b"nothing"}))
    session = opened_session(stored, Engine(ModelStore()))
    assert [one.member for one in session.stored.damaged] == [name]
    assert len(session.stored.answers) == len(results.entries) - 1
    assert figure_print(session.now.figure("predictions").figure) == made[1][0, "predictions"], "the others are shown"
    assert figure_print(session.steps[0].figure("attention").figure) == made[1][1, "attention"]
    with pytest.raises(BadModel, match="attention is damaged, and the weights are not on this machine") as caught:
        session.now.figure("attention")
    with pytest.raises(BadModel) as other_caught:
        session.now.compute("ablation")
    assert "damaged" not in other_caught.value.what, "no answer of it was stored"
    assert "1 answer damaged: attention" in caught.value.got
    assert main(["session", str(stored)]) == 0
    out = capsys.readouterr().out
    assert "damaged" in out and name[:20] in out and "--results" in out


def test_an_answer_of_another_version_of_its_analysis_is_not_shown(
    made: tuple[Path, Any], stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    analysis = analyses()["attention"]
    monkeypatch.setitem(_registry._REGISTRY, "attention", replace(analysis, version=analysis.version + 1))
    session = opened_session(stored, Engine(ModelStore()))
    assert figure_print(session.now.figure("predictions").figure) == made[1][0, "predictions"], "the others are"
    assert "attention" not in {answer.request.analysis.name for answer in session.stored.answers}
    assert not session.stored.damaged, "it is whole; what it says is of another time"


def test_results_are_kept_where_their_model_is_not(stored: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, out = members(stored), stored.parent / "out.circuitlab"
    assert main(["session", str(stored), "--results", "-o", str(out)]) == 3, "of one step nothing can be stored"
    after = members(out)
    assert {n: d for n, d in after.items() if n != "session.json"} == {n: d for n, d in before.items() if n != "session.json"}
    assert "lost" in capsys.readouterr().out


def test_the_command_line_stores_what_a_session_shows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = talk(tmp_path)
    out = tmp_path / "out.circuitlab"
    assert main(["session", str(path), "--results", "-o", str(out)]) == 3
    results = read_results(out)
    assert results is not None and f"{len(results.entries)} answers" in capsys.readouterr().out
    assert main(["session", str(path), "--results"]) == 2 and main(["session", str(path), "--results", "-o", "x.txt"]) == 2
    assert main(["session", str(out), "--results", "-o", str(out)]) == 3, "a file may be written over itself"
    assert "differ" not in capsys.readouterr().out


def test_the_command_line_says_which_stored_answers_are_other_ones_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = talk(tmp_path)
    file = computed(path)
    assert file.results is not None
    key = next(key for key, entry in file.results.entries.items() if entry.analysis == "attention")
    answer = read_stored(file.results.data(key), ModelRef("stored:x"))
    other = replace(answer, result=replace(answer.result, values=answer.result.values * 2))
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    path.write_bytes(container_bytes(members(path) | {answer_member(key): stored_bytes(other)}))
    assert main(["session", str(path), "--results", "-o", str(path)]) == 3
    out = capsys.readouterr().out
    assert "1 of" in out and "differ" in out and "attention" in out
    after = read_results(path)
    assert after is not None and after.data(key) == file.results.data(key), "what is computed counts"


# -- what is needed -------------------------------------------------------------------------------------------------------------


class _Stops(NullContext):
    def __init__(self, after: int) -> None:
        self.left = after

    def tick(self, done: int, total: int, text: str = "") -> None:
        self.left -= 1
        if not self.left:
            raise Cancelled


@pytest.mark.parametrize("after", [1, 7, 20])
def test_cancelling_stops_the_computation(tmp_path: Path, after: int) -> None:
    with pytest.raises(Cancelled):
        opened_session(talk(tmp_path), Engine(ModelStore())).with_results(FRONTS, _Stops(after))


def test_a_place_without_panels_has_those_of_its_arrangement(tmp_path: Path) -> None:
    path = talk(tmp_path)
    file = read_file(path).session
    of_panels = {}
    for arrange in ("", "Weights"):
        session = replace(file, now=replace(file.now, show=(), arrange=arrange), story=Story())
        path.write_bytes(bytes_of(session, path.parent))
        results = computed(path).results
        assert results is not None
        of_panels[arrange] = {entry.analysis for entry in results.entries.values()}
    assert "attention" in of_panels[""] and "attention" not in of_panels["Weights"]
    assert of_panels["Weights"] >= {"composition_scores"} or "composition" in " ".join(of_panels["Weights"])


def test_every_panel_is_stored_and_drawn_alike(tmp_path: Path) -> None:
    """The whole registry: a new panel is held to it."""
    path, shown = talk(tmp_path), tuple(panels())
    session = read_file(path).session
    now = replace(session.now, prompt=TEXT, show=shown, destination=5, pin=(Other(Setup(cut=("L0H1",))),), compare="difference")
    path.write_bytes(bytes_of(replace(session, now=now, story=Story()), path.parent))
    live = opened_session(path, Engine(ModelStore()))
    file = live.with_results(FRONTS)
    before = {name: drawn(live, name) for name in shown}
    path.write_bytes(file_bytes(file.session, path.parent, file.results))
    shutil.rmtree(tmp_path / "mine")
    away = opened_session(path, Engine(ModelStore()))
    after = {name: drawn(away, name) for name in shown}
    pictured = {name for name in shown if not before[name].startswith("Bad")}
    assert len(pictured) > 15
    assert {name for name in pictured if before[name] != after[name]} <= {"model"}, "its memory is that of weights"
    assert file.results is not None
    assert len(file.results.places[0].lacking) <= len(shown) - len(pictured)
    assert not any(str(tmp_path.parent) in line or "/" in line for line in file.results.places[0].lacking)


def drawn(session: SavedSession, panel: str) -> str:
    """The hash of a panel's figure where a session stands, or why there is none."""
    try:
        return figure_print(session.now.figure(panel).figure)
    except (BadInput, BadModel) as error:
        return f"{type(error).__name__}: {error.what}"


# -- words that name no model ---------------------------------------------------------------------------------------------------


@pytest.fixture
def unnamed(made: tuple[Path, Any], tmp_path: Path) -> Path:
    """The talk with results, whose steps take their model from where the session stands; without its model."""
    path = tmp_path / "unnamed" / "talk.circuitlab"
    path.parent.mkdir()
    inside = members(made[0] / "talks" / "talk.circuitlab")
    table = json.loads(inside["session.json"])
    del table["story"]["steps"][0]["set"]["model"]
    path.write_bytes(container_bytes(inside | {"session.json": json.dumps(table).encode()}))
    return path


def test_a_step_without_a_model_is_read_from_what_is_stored(made: tuple[Path, Any], unnamed: Path) -> None:
    assert prints(opened_session(unnamed, Engine(ModelStore()))) == made[1]


def test_a_step_without_a_model_never_draws_other_weights(unnamed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = directory(unnamed.parent.parent / "mine", d_model=32)
    plain, out = unnamed.with_name("plain.circuitlab"), unnamed.with_name("out.circuitlab")
    table = json.loads(members(unnamed)["session.json"])
    table["story"]["steps"][3]["set"] = {"model": str(other), "text": "ab"}
    plain.write_text(json.dumps(table))
    session = opened_session(plain, Engine(ModelStore()))
    for step in (session.now, *session.steps):
        with pytest.raises(CircuitLabError) as caught:
            step.compute("token_loss")
        assert "mine is not the model" in caught.value.what
    assert main(["figure", "attention", "--at", f"{plain}#1", "-o", str(out.with_suffix(".png"))]) == 3
    assert main(["session", str(plain), "--results", "-o", str(out)]) == 3
    results = read_results(out)
    assert results is not None and not results.entries and not results.hashes


def test_results_of_other_weights_are_not_those_of_the_session(
    made: tuple[Path, Any], stored: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    inside, other = members(stored), "ab" * 32
    table = json.loads(inside["session.json"])
    table["models"]["mine"]["sha256"] = other
    stored.write_bytes(container_bytes(inside | {"session.json": json.dumps(table).encode()}))
    session = opened_session(stored, Engine(ModelStore()))
    assert session.known_by_results == () and not session.stored.answers
    with pytest.raises(BadModel, match="mine") as caught:
        session.now.figure("attention")
    assert other[:12] in caught.value.expected and session.of_other_weights["mine"][:12] in caught.value.got
    staged = Searcher(Engine(ModelStore()), view_types()).stage(stored)
    assert staged.with_results == () and session.of_other_weights["mine"][:12] in about(staged, "mine")
    assert main(["session", str(stored)]) == 0
    assert session.of_other_weights["mine"][:12] in capsys.readouterr().out
    del table["models"]["mine"]["sha256"]
    stored.write_bytes(container_bytes(inside | {"session.json": json.dumps(table).encode()}))
    unknown = opened_session(stored, Engine(ModelStore()))
    assert not unknown.of_other_weights and prints(unknown) == made[1], "a session without a hash cannot disagree"
