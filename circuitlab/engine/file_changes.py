"""Whether the files that a model was read from are still what they were, and in words which of them are not.

Weights are known by size and times, as nobody reads gigabytes to look; where the system's own time alone has moved, as by a copy
that keeps times or by a new mode, whoever has their hash reads them once. What lies beside them is small, and often written anew
as it was (a training that is followed rewrites its configuration): there the bytes decide.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from circuitlab.counting import number_of
from circuitlab.disk.regular_file import sha256_of, stamp_of
from circuitlab.errors import printable

Identity = tuple[tuple[str, int, int], ...]
Places = tuple[tuple[int, int, int], ...]

_NAMED = 3  # files that a sentence names


def file_identity(files: tuple[Path, ...]) -> Identity:
    """(path, size, mtime in ns) of each file."""
    stats = ((f, f.stat()) for f in files)
    return tuple((str(f.resolve()), s.st_size, s.st_mtime_ns) for f, s in stats)


def file_places(files: tuple[Path, ...]) -> Places:
    """(device, inode, ctime in ns) of each file: where its content lies, and when anything of it changed last."""
    return tuple((s.st_dev, s.st_ino, s.st_ctime_ns) for s in (f.stat() for f in files))


def touched(places: Places, now: Places) -> bool:
    """Whether anything of a file has changed, whatever its size and mtime say: bytes that were copied over it with their times,
    or its mode or a name alone.

    The ctime says so. Inodes do not: some network drives number the same file anew each time.
    """
    return any(a[2] != b[2] for a, b in zip(places, now, strict=True))


@dataclass(frozen=True)
class Beside:
    """A file beside the weights as it was read. `stat`: size, times in ns, device and inode, of which equal ones say at once that
    it is the same; `sha256`: of its bytes."""

    path: Path
    stat: tuple[int, ...]
    sha256: str

    @classmethod
    def of(cls, path: Path) -> Beside:
        """As it is now. Raises `OSError`."""
        return cls(path, _stat(path), sha256_of([path]))

    def same(self) -> bool:
        """Whether it holds the same now. Raises `OSError`."""
        return _stat(self.path) == self.stat or sha256_of([self.path]) == self.sha256


def _stat(path: Path) -> tuple[int, ...]:
    now = path.stat()
    return *stamp_of(now), now.st_dev


@dataclass(frozen=True)
class FileChange:
    """Names of the files of a model that are gone, that cannot be reached, and that have changed."""

    gone: tuple[str, ...] = ()
    unreachable: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()

    def words(self, model: str) -> str:
        """What has become of the files of `model`, without a full stop: "config.json of gpt2 has changed since it was opened"."""
        kinds = (
            (self.gone, "is gone", "are gone"),
            (self.unreachable, "cannot be reached", "cannot be reached"),
            (self.changed, "has changed since it was opened", "have changed since it was opened"),
        )
        said = [(_listed(names), one if len(names) == 1 else several) for names, one, several in kinds if names]
        return ", ".join(f"{names}{'' if i else f' of {model}'} {what}" for i, (names, what) in enumerate(said))


def _listed(names: tuple[str, ...]) -> str:
    """ "a", "a and b", "a, b and 4 other files"."""
    shown = [printable(name, 80) for name in names]
    if len(shown) > _NAMED:
        shown = [*shown[: _NAMED - 1], number_of(len(shown) - _NAMED + 1, "other file")]
    return " and ".join(filter(None, (", ".join(shown[:-1]), shown[-1])))


def file_change(files: tuple[Path, ...], identity: Identity, places: Places, beside: Iterable[Beside]) -> FileChange | None:
    """What has become of weights (`identity`, `places`: of each, as they were) and of what lies beside them; None for nothing.

    As long as their disk takes to say where they are: for a worker thread.
    """
    gone, unreachable, changed = list[str](), list[str](), list[str]()
    checks = [(file, partial(_same, (file,), identity[i : i + 1], places[i : i + 1])) for i, file in enumerate(files)]
    checks += [(one.path, one.same) for one in beside]
    for path, same in checks:
        try:
            if not same():
                changed.append(path.name)
        except FileNotFoundError:
            gone.append(path.name)
        except OSError:
            unreachable.append(path.name)
    return FileChange(tuple(gone), tuple(unreachable), tuple(changed)) if gone or unreachable or changed else None


def _same(files: tuple[Path, ...], identity: Identity, places: Places) -> bool:
    return file_identity(files) == identity and not (places and touched(places, file_places(files)))
