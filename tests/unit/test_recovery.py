"""Nothing is lost and nothing is half there, whenever a process is killed: saved files, recovery files, recovering itself."""

from __future__ import annotations

import errno
import json
import os
import random
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from circuitlab.disk.file_lock import FileLock, Holder, holder_of, locked
from circuitlab.disk.files import linked, write_whole
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.subject import ModelRef
from circuitlab.session_files import last as last_module
from circuitlab.session_files import recovery, recovery_files
from circuitlab.session_files.last import keep_last, last, last_path, offer_last
from circuitlab.session_files.orphans import MOST, Orphan, Recoverable, newer_copy, orphans
from circuitlab.session_files.recovery import Recovery
from circuitlab.session_files.recovery_files import GENERATIONS, boot_id, recovery_folder
from circuitlab.session_files.session import ModelEntry, Session
from circuitlab.session_files.session_text import bytes_of
from circuitlab.story.setup import Encoded, Setup
from circuitlab.story.story import Step, Story
from tests.killing import killed_after, killed_before
from tests.patience import SECONDS

POSIX = pytest.mark.skipif(sys.platform == "win32", reason="needs a POSIX system: processes that are killed")
COARSE = 1.0  # s: how coarse the times of files are


def session(steps: int = 1, title: str = "", text: str = "one two", size: int = 0) -> Session:
    """A session of so many steps; `size` characters more."""
    story = Story(title, tuple(Step(f"step {i}", "x" * size, Setup(heads=(f"L0H{i % 4}",))) for i in range(steps)))
    models = {"mine": ModelEntry(ModelRef("file:/models/mine"), "77ab")}
    return Session(models, Setup(model="mine", prompt=Encoded(text, (0, 1, 2))), story, unknown={"later": [1, 2]})


def left(folder: Path | None = None, spacing: float = 60.0, of: Path | None = None, **words: object) -> Recovery:
    """A window that was killed: what it had autosaved, without its lock."""
    window = Recovery(folder, spacing)
    window.write(session(**words), of)  # type: ignore[arg-type]
    window._lock.release()
    return window


def aged(path: Path, seconds: float) -> None:
    now = path.stat().st_mtime
    os.utime(path, (now - seconds, now - seconds))


def only(recoverable: Recoverable) -> Orphan:
    assert len(recoverable.orphans) == 1 and not recoverable.damaged
    return recoverable.orphans[0]


# -- one window -----------------------------------------------------------------------------------------------------------------


def test_what_was_autosaved_is_offered_once_its_window_is_gone(tmp_path: Path) -> None:
    window, of = Recovery(), tmp_path / "talk.circuitlab"
    before = time.time()
    window.write(session(3, "Five views"), of)
    after = time.time()
    assert orphans() == Recoverable(), "the window still works"
    window._lock.release()
    orphan = only(orphans())
    assert (orphan.of, orphan.title, orphan.steps) == (of, "Five views", 3)
    assert before - COARSE <= orphan.time <= after + COARSE
    assert orphan.read() == session(3, "Five views"), "its own words are not those of the session"
    table = json.loads(window.path.read_bytes())
    assert (table["of"], table["pid"], table["boot"]) == (str(of), os.getpid(), boot_id())
    assert table["later"] == [1, 2]


def test_an_end_in_order_leaves_nothing(tmp_path: Path) -> None:
    window = Recovery(spacing=0)
    for steps in range(5):
        window.write(session(steps), None)
    assert len(list(recovery_folder().iterdir())) == GENERATIONS + 1
    window.remove()
    assert list(recovery_folder().iterdir()) == [] and orphans() == Recoverable()
    window.write(session(), None)  # and after a change it is there again
    window._lock.release()
    only(orphans())


@pytest.mark.parametrize(
    ("made", "title"),
    [
        (session(0, text=""), "mine"),
        (session(0, text="a  b\nc"), "mine · a b c"),
        (replace(session(0), now=Setup()), "untitled"),
        (session(0, text="a" * 70), f"mine · {'a' * 59}…"),
    ],
)
def test_a_session_without_name_is_named_by_what_it_is_about(made: Session, title: str) -> None:
    window = Recovery()
    window.write(made, None)
    window._lock.release()
    assert only(orphans()).title == title


def test_generations_are_apart_and_the_oldest_goes() -> None:
    window = Recovery(spacing=60)
    for moment in range(0, 300, 25):
        window.write(session(moment), None)
        os.utime(window.path, (moment, moment))
    window._lock.release()
    orphan = only(orphans())
    assert [len(orphan.read(i).story.steps) for i in range(GENERATIONS)] == [275, 225, 150]
    assert [copy.stat().st_mtime for copy in orphan.copies] == [275, 225, 150]


def test_a_full_disk_leaves_what_was_autosaved_before(monkeypatch: pytest.MonkeyPatch) -> None:
    window = left(steps=2)
    before = {p.name: p.read_bytes() for p in recovery_folder().iterdir()}

    def full(*_: object, **__: object) -> None:
        raise BadMachine("The disk is full.")

    monkeypatch.setattr(recovery, "write_whole", full)
    with pytest.raises(BadMachine):
        window.write(session(3), None)
    window._lock.release()
    assert only(orphans()).steps == 2
    assert window.path.read_bytes() == before[window.path.name]


def test_a_folder_that_cannot_be_made_is_said() -> None:
    recovery_folder().parent.mkdir(parents=True)
    recovery_folder().write_bytes(b"in the way")
    with pytest.raises(BadMachine, match="in the way"):
        Recovery().write(session(), None)
    assert orphans() == Recoverable()


def test_a_folder_that_cannot_be_written_still_offers_what_lies_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a disk that became read-only, also for root: whatever would change the folder is refused."""
    good, broken = left(steps=2), left(steps=3)
    broken.path.write_bytes(b"{")
    aged(broken.path, 10_000)
    _signed(good, boot="another start of the machine")

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    for name in ("open", "replace", "unlink", "link", "mkdir"):
        monkeypatch.setattr(os, name, refused)
    monkeypatch.setattr(FileLock, "take", refused)
    result = orphans()
    assert [o.steps for o in result.orphans] == [2] and result.orphans[0].read() == session(2)
    assert result.damaged == (broken.path,), "it stays where it is"
    with pytest.raises(BadMachine, match="cannot be written to"):
        Recovery().write(session(), None)
    result.orphans[0].discard()
    assert good.path.exists()


# -- who is gone ----------------------------------------------------------------------------------------------------------------


def _signed(window: Recovery, **own: object) -> None:
    table = json.loads(window.path.read_bytes()) | own
    window.path.write_text(json.dumps(table))


@POSIX
def test_a_number_that_another_process_has_by_now_is_not_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    window = left()
    _signed(window, pid=os.getppid())
    assert only(orphans()).id == window.id, "nobody has its lock"

    def no_locks(file: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("circuitlab.disk.file_lock._take", no_locks)
    assert orphans() == Recoverable(), "on a disk without locks, a process of this number may be it"
    _signed(window, boot="another start of the machine")
    assert only(orphans()).id == window.id
    _signed(window, pid=2**22 + 1, boot=boot_id())
    assert only(orphans()).id == window.id
    _signed(window, pid="7", boot=boot_id())
    assert only(orphans()).id == window.id


def test_a_session_that_another_window_takes_is_not_offered_twice() -> None:
    left()
    orphan = only(orphans())
    claim = orphan.claim()
    assert claim is not None and claim.held
    assert orphans() == Recoverable() and orphan.claim() is None
    orphan.discard()
    assert orphan.copies[0].exists(), "it is not thrown away under the window that recovers it"
    claim.release()
    only(orphans()).discard()
    assert list(recovery_folder().iterdir()) == []


def test_of_twenty_five_the_newest_twenty_are_kept() -> None:
    for i in range(25):
        aged(left(steps=i).path, 1000 - i)
    result = orphans()
    assert [o.steps for o in result.orphans] == list(range(24, 4, -1)) and len(result.orphans) == MOST
    assert orphans() == result and len(list(recovery_folder().glob("*.circuitlab"))) == MOST


def test_what_is_newer_than_its_file_is_found_by_that_file(tmp_path: Path) -> None:
    file, other = tmp_path / "talk.circuitlab", tmp_path / "other.circuitlab"
    write_whole(file, bytes_of(session(), tmp_path))
    window = left(of=file, steps=4)
    left(of=other)
    left()
    aged(file, 100)
    result = orphans().orphans
    newer = newer_copy(result, tmp_path / "." / "talk.circuitlab")
    assert newer is not None and newer.id == window.id
    aged(window.path, 50)
    aged(file, -90)
    result = orphans().orphans
    assert newer_copy(result, file) is None, "it was saved after that"
    file.unlink()
    assert (newer := newer_copy(result, file)) is not None and newer.id == window.id, "the file is gone, its work is not"
    assert newer_copy(result, tmp_path / "third.circuitlab") is None


# -- damage ---------------------------------------------------------------------------------------------------------------------


def test_a_damaged_file_is_said_and_kept_aside_and_the_generation_before_it_is_offered() -> None:
    window = Recovery(spacing=0)
    for steps in (1, 2, 3):
        window.write(session(steps), None)
    window._lock.release()
    good, broken = left(steps=7), left(steps=8)
    for path, data in ((window.path, b'{"circuitlab": "session", "ver'), (broken.path, b"\0" * 100)):
        path.write_bytes(data)
    result = orphans()
    assert {(o.id, o.steps, o.damaged) for o in result.orphans} == {(window.id, 2, 1), (good.id, 7, 0)}
    assert {p.name for p in result.damaged} == {window.path.name, broken.path.name}
    assert all(p.parent == recovery_folder() / "damaged" for p in result.damaged)
    assert (recovery_folder() / "damaged" / broken.path.name).read_bytes() == b"\0" * 100
    assert orphans().damaged == (), "said once"
    assert {o.steps for o in orphans().orphans} == {2, 7}


def test_a_clock_that_was_set_back_hides_nothing_and_removes_nothing_new(tmp_path: Path) -> None:
    """What was written while it was ahead is of a time that is yet to come."""
    file = tmp_path / "talk.circuitlab"
    write_whole(file, bytes_of(session(), tmp_path))
    for steps in range(2, MOST + 2):
        aged(left(steps=steps).path, -1000 - steps)
    window = left(of=file, steps=99)
    aged(file, -1000)
    result = orphans().orphans
    assert [o.steps for o in result] == [99, *range(MOST + 1, 2, -1)]
    newer = newer_copy(result, file)
    assert newer is not None and newer.id == window.id


def test_a_session_of_a_newer_version_is_left_to_that() -> None:
    window = left()
    _signed(window, version=99)
    before = window.path.read_bytes()
    assert orphans() == Recoverable() and window.path.read_bytes() == before


def test_what_is_damaged_and_cannot_be_moved_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = left(steps=2)
    broken.path.write_bytes(b"{")
    (recovery_folder() / "damaged").write_bytes(b"in the way of a folder")
    assert orphans().damaged == (broken.path,)
    assert broken.path.read_bytes() == b"{", "it stays, as was said"
    keep_last(session(), None, True)
    last_path().write_bytes(b"{")
    with pytest.raises(BadMachine, match="is not replaced"):
        keep_last(session(2), None, True)
    assert last_path().read_bytes() == b"{"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.EACCES])
def test_what_the_system_cannot_read_just_now_is_not_damaged(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    window = left(steps=2)
    keep_last(session(3), None, True)
    before = {path: path.read_bytes() for path in (window.path, last_path())}

    def refused(*_: object) -> bytes:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(recovery_files, "read_at_most", refused)
        assert orphans() == Recoverable((), (window.path,))
        with pytest.raises(BadMachine, match="is not replaced"):
            keep_last(session(4), None, True)
    assert {path: path.read_bytes() for path in before} == before
    only(orphans())


def test_no_more_damaged_files_than_sessions_are_kept() -> None:
    for i in range(MOST + 3):
        window = left()
        window.path.write_bytes(b"%d" % i)
        aged(window.path, 1000 - i)
    assert len(orphans().damaged) == MOST + 3
    kept = sorted(int(p.read_bytes()) for p in (recovery_folder() / "damaged").iterdir())
    assert kept == list(range(3, MOST + 3))


def test_half_written_files_of_the_killed_go_after_a_while() -> None:
    recovery_folder().mkdir(parents=True)
    litter = [recovery_folder() / name for name in ("aa.new", "aa.lock", "bb.new")]
    for path in litter:
        path.write_bytes(b"")
    with_lock = FileLock(recovery_folder() / "cc.lock")
    assert with_lock.take() is None
    orphans()
    assert all(path.exists() for path in litter), "a window may be about to write its first one"
    for path in (*litter, with_lock.path):
        aged(path, 1000)
    orphans()
    assert [p.name for p in recovery_folder().iterdir()] == ["cc.lock"]
    with_lock.release(remove=True)


# -- killed while writing -------------------------------------------------------------------------------------------------------


def _in_two_parts(data: bytes):  # type: ignore[no-untyped-def]
    def write(file) -> None:  # type: ignore[no-untyped-def]
        file.write(data[: len(data) // 2])
        file.flush()
        os.fsync(file.fileno())
        file.write(data[len(data) // 2 :])

    return write


@POSIX
@pytest.mark.parametrize("how", ["replaced", "previous", "own name", "linked"])
def test_a_file_is_the_old_or_the_new_one_wherever_its_writer_is_killed(tmp_path: Path, how: str) -> None:
    path, previous, source = tmp_path / "a", tmp_path / "before", tmp_path / "source"
    old, new = b"old" * 1000, b"new" * 2000
    fresh = tmp_path / "a.new" if how == "own name" else None

    def act() -> None:
        if how == "linked":
            linked(source, path, tmp_path / "a.new")
        else:
            write_whole(path, _in_two_parts(new), previous if how == "previous" else None, fresh=fresh)

    states, call = [], 0
    while True:
        call += 1
        for file in tmp_path.iterdir():
            file.unlink()
        source.write_bytes(new)
        path.write_bytes(old)
        killed = killed_before(call, act)
        states.append(path.read_bytes())
        assert states[-1] in (old, new), call
        assert not previous.exists() or previous.read_bytes() == old
        act()  # whatever lies about, the next one succeeds
        assert path.read_bytes() == new
        if not killed:
            break
    assert states == sorted(states, key=[old, new].index), "once new, always new"
    assert states[0] == old and states[-1] == new and call > 4


@POSIX
def test_recovery_offers_the_last_or_the_one_before_wherever_a_window_is_killed(tmp_path: Path) -> None:
    call, counts = 0, []
    while True:
        call += 1
        folder = tmp_path / str(call)
        window = Recovery(folder, spacing=0)
        for steps in (1, 2, 3):
            window.write(session(steps), None)
        window._lock.release()  # it is the child's now
        killed = killed_before(call, lambda: window.write(session(4), None))  # noqa: B023
        orphan = only(orphans(folder))
        counts.append(orphan.steps)
        read = [len(orphan.read(i).story.steps) for i in range(len(orphan.copies))]
        assert read == sorted(read, reverse=True) and len(read) >= 2, "and an earlier one behind it"
        if not killed:
            break
    assert set(counts) == {3, 4} and counts == sorted(counts)


@POSIX
def test_recovering_can_be_killed_anywhere_too(tmp_path: Path) -> None:
    """The new window writes the session under its own name, then takes over the copies."""
    call = 0
    while True:
        call += 1
        folder = tmp_path / str(call)
        gone = Recovery(folder, spacing=0)
        for steps in (5, 6):
            gone.write(session(steps), None)
        gone._lock.release()

        def recovers() -> None:
            orphan = only(orphans(folder))  # noqa: B023
            claim, window = orphan.claim(), Recovery(folder)  # noqa: B023
            window.write(orphan.read(), orphan.of)
            window.adopt(orphan, claim)

        killed = killed_before(call, recovers)
        result = orphans(folder)
        assert not result.damaged
        steps = {len(o.read(i).story.steps) for o in result.orphans for i in range(len(o.copies))}
        assert 6 in {o.steps for o in result.orphans} and 5 in steps, call
        if not killed:
            break
    assert only(orphans(folder)).steps == 6, "one session, of the window that took it"
    assert call > 10


@POSIX
@pytest.mark.slow
def test_killed_a_hundred_times_at_any_moment(tmp_path: Path) -> None:
    """Of save and autosave together: the file is the last or the one before it, byte for byte, and so is what is offered."""
    rng = random.Random(0)
    sessions = [session(i, size=rng.randrange(5_000)) for i in range(20)]
    for attempt in range(100):
        folder = tmp_path / str(attempt)
        file, window, progress = folder / "talk.circuitlab", Recovery(folder / "recovery", spacing=0), folder / "done"
        folder.mkdir()
        texts = [bytes_of(one, folder) for one in sessions]
        write_whole(file, texts[0])
        progress.touch()

        def works() -> None:
            with progress.open("ab", buffering=0) as done:  # noqa: B023
                for i in range(1, 10_000):
                    write_whole(file, texts[i % 20])  # noqa: B023
                    done.write(b"s")
                    window.write(sessions[i % 20], file)  # noqa: B023
                    done.write(b"a")

        killed_after(0.12, works, rng)
        done = progress.read_bytes()
        saved, autosaved = done.count(b"s"), done.count(b"a")
        assert file.read_bytes() in (texts[saved % 20], texts[(saved + 1) % 20])
        result = orphans(window.folder)
        assert not result.damaged
        if autosaved or result.orphans:
            assert only(result).read() in (sessions[autosaved % 20], sessions[(autosaved + 1) % 20])


# -- where one stopped ----------------------------------------------------------------------------------------------------------


def test_the_next_start_finds_where_one_stopped(tmp_path: Path) -> None:
    assert last() is None
    keep_last(session(2), None, True)
    result = last()
    assert result is not None and (result.session, result.of, result.unsaved) == (session(2), None, True)
    keep_last(session(3), tmp_path / "talk.circuitlab", False, result.stamp)
    result = last()
    assert result is not None and (result.session, result.of) == (session(3), tmp_path / "talk.circuitlab") and not result.unsaved
    assert orphans() == Recoverable(), "it is not a window that was killed"


def test_what_was_never_saved_is_not_replaced_by_another_window_s_end() -> None:
    keep_last(session(1), None, True)
    mine = last()
    assert mine is not None
    keep_last(session(2), None, True, mine.stamp)  # by the window that came back to it
    assert orphans() == Recoverable()
    keep_last(session(3), None, False, mine.stamp)  # by another that had come back to the same
    keep_last(session(4), None, True)  # by one that was started on a model
    closed = only(orphans())
    assert closed.closed and closed.steps == 2, "the third had nothing unsaved"
    left(steps=9)
    assert [(o.steps, o.closed) for o in orphans().orphans] == [(9, False), (2, True)]


def test_what_another_window_left_is_offered_once_with_its_time() -> None:
    keep_last(session(3), None, True)
    aged(last_path(), 500)
    mine = last()
    assert mine is not None and mine.stamp is not None
    assert offer_last(mine.stamp) == () and orphans() == Recoverable(), "this window came back to it"
    closed = last_path().stat().st_mtime
    assert offer_last() == () and offer_last() == ()
    orphan = only(orphans())
    assert orphan.closed and orphan.read() == session(3) and abs(orphan.time - closed) < 0.01
    keep_last(session(4), None, False)
    assert only(orphans()).id == orphan.id, "not again when that window ends"
    last_path().write_bytes(b"{")
    assert [path.read_bytes() for path in offer_last()] == [b"{"]


def test_a_last_session_that_is_damaged_is_kept_aside() -> None:
    keep_last(session(), None, True)
    last_path().write_bytes(b"{")
    with pytest.raises(BadInput):
        last()
    keep_last(session(2), None, True)
    result = last()
    assert result is not None and result.session == session(2)
    assert (recovery_folder() / "damaged" / last_path().name).read_bytes() == b"{"


def test_two_windows_that_end_at_once_lose_neither_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The second begins while the first is between its look and its write, and either waits there or gets through."""
    blocked, second_ended = threading.Event(), threading.Event()
    take, write = FileLock.take, last_module.write_whole

    def taken(lock: FileLock) -> Holder | None:
        holder = take(lock)
        if holder is not None:
            blocked.set()
        return holder

    def second() -> None:
        keep_last(session(2), None, True)
        second_ended.set()
        blocked.set()

    thread = threading.Thread(target=second)

    def written(*args: Any, **words: Any) -> None:
        if not thread.ident:
            thread.start()
            assert blocked.wait(SECONDS)
        write(*args, **words)

    monkeypatch.setattr(FileLock, "take", taken)
    monkeypatch.setattr(last_module, "write_whole", written)
    keep_last(session(1), None, True)
    thread.join(SECONDS)
    assert second_ended.is_set()
    result = last()
    assert result is not None
    assert sorted([len(result.session.story.steps), *(o.steps for o in orphans().orphans)]) == [1, 2]


def test_closed_sessions_make_room_before_those_of_a_crash() -> None:
    for i in range(MOST):
        aged(left(steps=i).path, 10_000)
    closed = Recovery()
    closed.write(session(99), None, closed=True)
    closed.leave()
    assert {o.steps for o in orphans().orphans} == set(range(MOST))


# -- locks ----------------------------------------------------------------------------------------------------------------------


def test_a_lock_is_one_object_s_and_says_whose(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    one, two, before = FileLock(path, "some host"), FileLock(path), time.time()
    assert holder_of(path) is None and one.take() is None and one.held
    holder = two.take()
    assert holder is not None and not two.held
    assert (holder.pid, holder.machine) == (os.getpid(), "some host")
    assert before - COARSE <= holder.since <= time.time() + COARSE
    assert holder_of(path) == holder and holder.words() == f"process {os.getpid()} on some host"
    with pytest.raises(BadInput, match="process"), locked(two, BadInput):
        raise AssertionError("nobody comes here")
    one.release(remove=True)
    assert not path.exists() and two.take() is None and holder_of(path) is not None
    two.release()
    assert path.exists() and holder_of(path) is None
    with locked(two, BadInput, remove=True):
        assert two.held and holder_of(path) == Holder(os.getpid(), "", path.stat().st_mtime)
    assert not path.exists()
    with locked(FileLock(tmp_path / "none" / "lock"), BadInput):
        pass
    with pytest.raises(BadMachine), locked(FileLock(tmp_path / "none" / "lock"), BadInput, lambda error: BadMachine(str(error))):
        raise AssertionError("nobody comes here")


@POSIX
def test_a_lock_on_a_file_that_was_removed_meanwhile_is_taken_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One opens the lock's file, its holder removes it, one locks what nobody else will ever look at."""
    from circuitlab.disk import file_lock

    path, take = tmp_path / "lock", file_lock._take
    removed = list[int]()

    def slowly(file) -> None:  # type: ignore[no-untyped-def]
        if not removed:
            removed.append(1)
            path.unlink()
        take(file)

    monkeypatch.setattr(file_lock, "_take", slowly)
    lock = FileLock(path)
    assert lock.take() is None
    monkeypatch.undo()
    assert path.exists() and FileLock(path).take() is not None
    lock.release()


@POSIX
def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    assert killed_before(2, lambda: (FileLock(path).take(), path.with_name("more").touch(), path.with_name("last").touch()))
    lock = FileLock(path)
    assert path.exists() and lock.take() is None
    lock.release()
