"""Damaged and hostile sessions with results: each is read and written alike, or refused with a typed error."""

from __future__ import annotations

import random
import shutil
import struct
import sys
import time
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import CircuitLabError
from circuitlab.gui.sessions.file_work import FRONTS
from circuitlab.report.saved_session import opened_session
from circuitlab.session_files.results import file_bytes, read_file
from tests.fuzz.byte_mutators import BYTES
from tests.fuzz.json_mutators import JSON
from tests.fuzz.test_session_files import BYTES_MORE, SECONDS, anywhere, faults
from tests.fuzz.worker import _forget_peak, _status
from tests.unit.test_session_results import computed, talk

Mutator = Callable[[Path, random.Random], str]


def _unpacked(file: Path) -> list[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as archive:
        return [(info.filename, archive.read(info)) for info in archive.infolist()]


def _packed(file: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)


def inside(mutators: tuple[Mutator, ...], suffix: str) -> Mutator:
    """One member with this suffix changed as a file is."""

    def mutate(file: Path, rng: random.Random) -> str:
        members = _unpacked(file)
        i = rng.choice([i for i, (name, _) in enumerate(members) if name.endswith(suffix)])
        part = file.with_name("member.json")
        part.write_bytes(members[i][1])
        done = rng.choice(mutators)(part, rng)
        _packed(file, [(n, part.read_bytes() if j == i else data) for j, (n, data) in enumerate(members)])
        return f"{done} as {members[i][0][:24]}"

    return mutate


def members_changed(file: Path, rng: random.Random) -> str:
    """Members gone, twice, exchanged, renamed, deflated, added, or a bomb among them."""
    members = _unpacked(file)
    i, j = rng.randrange(len(members)), rng.randrange(len(members))
    kind = rng.choice(["gone", "twice", "exchanged", "renamed", "packed", "more", "many", "bomb", "nested", "turned"])
    if kind == "gone":
        del members[i]
    elif kind == "twice":
        members.append(members[i])
    elif kind == "exchanged":
        members[i], members[j] = (members[i][0], members[j][1]), (members[j][0], members[i][1])
    elif kind == "renamed":
        names = ["../x", "/x", "a\\b", "x/../y", "models//x", "results/" + "f" * 64 + ".npz", "models/mine/x.py", "\0", "x" * 300]
        members[i] = (rng.choice(names), members[i][1])
    elif kind == "more":
        members.append((rng.choice(["a/b", "models/other/config.json", "session.json~"]), rng.randbytes(500)))
    elif kind == "many":
        members += [(f"x/{n}", b"") for n in range(9000)]
    elif kind == "bomb":
        members[i] = (members[i][0], bytes(60_000_000))
    elif kind == "nested":
        npz = [k for k, (name, _) in enumerate(members) if name.endswith(".npz")]
        inner = file.with_name("inner.npz")
        _packed(inner, [("values.npy", bytes(60_000_000)), ("about.npy", b"")], zipfile.ZIP_DEFLATED)
        members[rng.choice(npz)] = (members[rng.choice(npz)][0], inner.read_bytes())
    else:
        members.reverse()
    _packed(file, members, zipfile.ZIP_DEFLATED if kind in ("packed", "bomb") else zipfile.ZIP_STORED)
    return kind


def directory_lies(file: Path, rng: random.Random) -> str:
    """Sizes, offsets, methods and names in the zip's own directory, or its end, that lie."""
    data = bytearray(file.read_bytes())
    end = data.rfind(b"PK\x05\x06")
    entries = [i for i in range(len(data) - 46) if data[i : i + 4] == b"PK\x01\x02"]
    fields = {"flags": (8, "<H"), "method": (10, "<H"), "packed": (20, "<I"), "size": (24, "<I"), "name": (28, "<H")}
    fields |= {"extra": (30, "<H"), "comment": (32, "<H"), "offset": (42, "<I")}
    value = rng.choice([0, 1, 8, 14, 99, 0xFFFF, 0xFFFFFFFF, 2**28, 2**31, len(data)])
    kind = rng.choice([*fields, "end", "end", "end64"])
    if kind == "end":
        form, place = rng.choice([("<H", 8), ("<H", 10), ("<I", 12), ("<I", 16), ("<H", 20)])
        struct.pack_into(form, data, end + place, value & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    elif kind == "end64":
        locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, rng.choice([0, end, value]), 1)
        data[end - 20 : end] = locator
    else:
        place, form = fields[kind]
        struct.pack_into(form, data, rng.choice(entries) + place, value & (0xFFFF if form == "<H" else 0xFFFFFFFF))
    file.write_bytes(data)
    return f"{kind} = {value}"


MUTATORS: tuple[Mutator, ...] = (
    *BYTES,
    *(inside((anywhere, *JSON), ".json"),) * 12,
    *(inside(BYTES, ".npz"),) * 6,
    *(inside(BYTES, ".json"),) * 3,
    *(members_changed,) * 12,
    *(directory_lies,) * 10,
)


def mutated(source: Path, folder: Path, seed: str) -> tuple[Path, str]:
    """A session with results to which one or two things have been done, and what."""
    rng = random.Random(seed)
    file = folder / "talk.circuitlab"
    shutil.copyfile(source, file)
    done: list[str] = []
    for _ in range(rng.choice([1, 1, 1, 2])):
        try:
            done.append(rng.choice(MUTATORS)(file, rng))
        except Exception:  # what came before has left no zip, or no JSON
            break
    return file, ", ".join(done)


def opened(file: Path, engine: Engine) -> None:
    """Read, write and read again alike; then the models that are known by results, and what they show."""
    read = read_file(file)
    data = file_bytes(read.session, file.parent, read.results)
    again = file.with_name("again.circuitlab")
    again.write_bytes(data)
    once_more = read_file(again)
    assert once_more.session == read.session
    assert file_bytes(once_more.session, file.parent, once_more.results) == data
    session = opened_session(file, engine)
    try:
        session.with_results(FRONTS)
    finally:
        if "stored" in vars(session):
            session.stored.leave(engine)


def walk(source: Path, folder: Path, count: int) -> tuple[Counter[str], list[str]]:
    """(how many came out how, what is wrong)."""
    engine, outcomes, wrong = Engine(ModelStore()), Counter[str](), list[str]()
    for i in range(count):
        file, done = mutated(source, folder, f"{count}:{i}")
        _forget_peak()
        before, began = _status("VmRSS"), time.process_time()
        try:
            opened(file, engine)
            outcome = "opened"
        except CircuitLabError as error:
            outcome = error.what.split(":")[0][:60]
            wrong += [f"{count}:{i} {done}: the error {fault}: {error!r}" for fault in faults(error)]
        except Exception as error:
            outcome = type(error).__name__
            wrong.append(f"{count}:{i} {done}: {error!r}")
        if (seconds := time.process_time() - began) > SECONDS:
            wrong.append(f"{count}:{i} {done}: took {seconds:.1f} s")
        if (more := _status("VmHWM") - before) > BYTES_MORE:
            wrong.append(f"{count}:{i} {done}: took {more >> 20} MiB")
        outcomes[outcome] += 1
    return outcomes, wrong


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux: memory is read from /proc")
@pytest.mark.parametrize(
    "count", [200, pytest.param(500, marks=pytest.mark.slow), pytest.param(2000, marks=pytest.mark.thorough)]
)
def test_mutated_results_open_or_say_why_not(tmp_path: Path, count: int) -> None:
    path = talk(tmp_path / "here")
    file = computed(path)
    source = tmp_path / "source.circuitlab"
    source.write_bytes(file_bytes(file.session, tmp_path, file.results))
    shutil.rmtree(tmp_path / "here")
    (tmp_path / "folder").mkdir()
    outcomes, wrong = walk(source, tmp_path / "folder", count)
    assert not wrong, "\n".join(wrong)
    assert outcomes["opened"] and len(outcomes) > 10, outcomes
