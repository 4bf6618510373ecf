"""The models of a session on another machine: found by the hash of their weights, never by a name alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled
from circuitlab.model.subject import ModelRef
from circuitlab.session_files.model_search import Located, located
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of, parse_session
from tests.models import directory


@pytest.fixture
def talk(tmp_path: Path) -> Path:
    """A folder with a session's place, `here/talk`, and a model, `here/runs/mine`."""
    directory(tmp_path / "here" / "runs" / "mine")
    (tmp_path / "here" / "talk").mkdir()
    return tmp_path / "here" / "talk"


def session_of(path: Path, store: ModelStore, sha256: str | None = None) -> Session:
    """A session of one model called "mine"."""
    ref = ModelRef(f"file:{path}")
    return Session({"mine": ModelEntry(ref, store.sha256(ref) if sha256 is None else sha256)})


def place(found: Located) -> tuple[str, tuple[str, ...]]:
    entry = found.session.models["mine"]
    return entry.ref.source.removeprefix("file:"), entry.earlier


def altered(folder: Path) -> Path:
    """The model in a folder with other weights."""
    tensors = load_file(folder / "model.safetensors")
    save_file({name: 2 * tensor for name, tensor in tensors.items()}, folder / "model.safetensors")
    return folder


def test_a_model_is_found_where_the_file_says(talk: Path) -> None:
    mine = talk.parent / "runs" / "mine"
    session = session_of(mine, ModelStore())
    assert located(session, talk, ModelStore()) == Located(session)
    store = ModelStore()
    store.open(ModelRef(f"file:{mine}"))
    assert located(session, talk, store) == Located(session)


def test_folders_that_move_together_need_no_search(talk: Path, tmp_path: Path) -> None:
    session = session_of(talk.parent / "runs" / "mine", ModelStore())
    data = bytes_of(session, talk)
    talk.parent.rename(tmp_path / "there")
    talk = tmp_path / "there" / "talk"
    result = located(parse_session(data, talk), talk, ModelStore())
    assert place(result) == (str(tmp_path / "there" / "runs" / "mine"), ()) and not result.missing and not result.changed


@pytest.mark.parametrize("where", ["talk/mine", "talk/deeper/still/other-name", "far/of-the-recent-list", "earlier"])
def test_a_model_that_moved_is_found_by_its_hash(talk: Path, tmp_path: Path, where: str) -> None:
    old = talk.parent / "runs" / "mine"
    session = session_of(old, ModelStore())
    new = talk.parent / where if where.startswith("talk") else tmp_path / where
    new.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(old, new)
    if where == "earlier":
        session = replace(session, models={"mine": replace(session.models["mine"], earlier=("/nowhere", str(new)))})
    result = located(session, talk, ModelStore(), [f"file:{new}"] if where.startswith("far") else [])
    earlier = (str(old), "/nowhere") if where == "earlier" else (str(old),)
    assert place(result) == (str(new), earlier) and not result.missing and not result.changed
    assert result.elsewhere == {"mine": False}
    assert not located(result.session, talk, ModelStore()).elsewhere, "said once"


def test_the_weights_are_found_elsewhere_where_others_lie_in_their_place(talk: Path) -> None:
    mine = talk.parent / "runs" / "mine"
    session = session_of(mine, ModelStore())
    shutil.copytree(mine, talk / "mm")
    altered(mine)
    result = located(session, talk, ModelStore())
    assert place(result)[0] == str(talk / "mm") and not result.changed and result.elsewhere == {"mine": True}


def test_a_shipped_model_by_its_hash_under_another_name(talk: Path) -> None:
    store = ModelStore()
    sha256 = store.sha256(ModelRef("builtin:attn-only-0l"))
    result = located(Session({"a copy": ModelEntry(ModelRef("file:/nowhere/copy"), sha256)}), talk, ModelStore())
    assert result.session.models["a copy"].ref == ModelRef("builtin:attn-only-0l")
    assert result.session.models["a copy"].earlier == ("/nowhere/copy",)


def test_constructed_models_and_assumptions(talk: Path) -> None:
    store, ref = ModelStore(), ModelRef("construct:rope-induction")
    session = Session({"mine": ModelEntry(ref, store.sha256(ref))})
    assert located(session, talk, ModelStore()) == Located(session)
    assumed = ModelRef("file:/nowhere", assume=(("positions", "shortformer"),))
    sha256 = store.sha256(ModelRef("builtin:attn-only-0l"))
    result = located(Session({"mine": ModelEntry(assumed, sha256)}), talk, ModelStore())
    assert result.session.models["mine"].ref.assume == assumed.assume


def test_a_checkpoint_of_another_model_is_not_taken_for_a_model(talk: Path) -> None:
    session = session_of(altered(directory(talk.parent / "trained")), ModelStore())
    other = directory(talk / "other")
    (other / "checkpoints").mkdir()
    shutil.move(talk.parent / "trained" / "model.safetensors", other / "checkpoints" / "step-000064.safetensors")
    shutil.rmtree(talk.parent / "trained")
    assert located(session, talk, ModelStore()).missing == ("mine",)


def test_another_model_at_the_path_or_of_the_name_is_told_and_not_taken(talk: Path) -> None:
    mine = talk.parent / "runs" / "mine"
    session = session_of(mine, ModelStore())
    store = ModelStore()
    store.sha256(ModelRef(f"file:{mine}"))
    altered(mine)
    for before in (ModelStore(), store):  # the second one has the old weights open
        result = located(session, talk, before)
        assert (result.session, result.missing) == (session, ())
        assert result.changed == {"mine": ModelRef(f"file:{mine}")}
    (talk / "deep").mkdir()
    shutil.move(mine, talk / "deep" / "mine")
    assert located(session, talk, ModelStore()).changed == {"mine": ModelRef(f"file:{talk / 'deep' / 'mine'}")}


def test_without_a_hash_the_place_decides_and_a_name_is_only_told(talk: Path) -> None:
    mine = talk.parent / "runs" / "mine"
    session = session_of(mine, ModelStore(), "")
    assert located(session, talk, ModelStore()) == Located(session)
    shutil.move(mine, talk / "mine")
    result = located(session, talk, ModelStore())
    assert (result.session, result.changed) == (session, {"mine": ModelRef(f"file:{talk / 'mine'}")})
    (talk / "mine").rename(talk / "yours")
    assert located(session, talk, ModelStore()) == Located(session, ("mine",))


def test_nothing_anywhere_is_missing_and_a_search_can_be_stopped(talk: Path) -> None:
    session = Session({"mine": ModelEntry(ModelRef("hub:nobody/nothing"), "77ab"), "odd": ModelEntry(ModelRef("odd:x"), "")})
    (talk / "damaged.safetensors").write_bytes(b"no tensors")
    result = located(session, talk, ModelStore())
    assert (result.session, result.missing, result.changed) == (session, ("mine", "odd"), {})
    with pytest.raises(Cancelled):
        located(session, talk, ModelStore(), stopped=lambda: True)


def test_files_are_hashed_once_and_again_when_they_change(talk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import circuitlab.engine.store as module

    mine, store = talk.parent / "runs" / "mine", ModelStore()
    session, hashed = session_of(mine, ModelStore()), []
    digest = module._digest
    monkeypatch.setattr(module, "_digest", lambda files, stopped: hashed.append(files) or digest(files, stopped))
    for _ in range(2):
        assert not located(session, talk, store).changed
    assert len(hashed) == 1 and store.peek(ModelRef(f"file:{mine}")) is None, "nothing is opened"
    altered(mine)
    assert located(session, talk, store).changed and hashed.count(hashed[0]) == 2
