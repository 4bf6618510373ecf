"""Where the shipped files and the person's own files are: one helper for a checkout and for an installed wheel.

`resources/` and `models/` stand beside the package in a checkout and inside it in a wheel (pyproject.toml moves them there).
"""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tomllib
from pathlib import Path, PureWindowsPath

from circuitlab.errors import UsageError, cause, printable

_PACKAGE = Path(__file__).resolve().parent.parent


def shipped(kind: str) -> Path:
    """The shipped folder `kind` ("resources" or "models"), installed or in a checkout."""
    inside = _PACKAGE / kind
    return inside if inside.is_dir() else _PACKAGE.parent / kind


def resource(*parts: str) -> Path:
    """A file under `resources/`, for instance `resource("recipes", "attn-only-2l.toml")`."""
    return shipped("resources").joinpath(*parts)


def model_dir(name: str) -> Path:
    """The directory of a shipped model by its name."""
    return shipped("models") / name


def typed_path(text: str) -> Path:
    """The path that a person has typed, with `~` as the shell reads it. Raises `UsageError` for what no path can be."""
    try:
        path = Path(text).expanduser()
        os.fsencode(path)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            path.stat()  # an error for names longer than the system has, and for links that lead back to themselves
    except (OSError, RuntimeError, ValueError) as error:
        why = "a name that no file can have" if isinstance(error, ValueError) else cause(error)
        got = f"{printable(text)[:80]}: {why}"
        raise UsageError("That is not a path.", expected="a file or a folder", got=got, remedy="Check the path.") from error
    return path


def shipped_models() -> tuple[str, ...]:
    """Names of the models that ship with CircuitLab, sorted."""
    folder = shipped("models")
    return tuple(sorted(p.name for p in folder.iterdir() if (p / "config.json").is_file())) if folder.is_dir() else ()


def shipped_recipes() -> dict[str, str]:
    """The title of each shipped training recipe by its name, sorted."""
    titles = {}
    for path in sorted(resource("recipes").glob("*.toml")):
        with path.open("rb") as file:
            titles[path.stem] = str(tomllib.load(file).get("title", ""))
    return titles


def base_name(path: str) -> str:
    """The last part of a path as it is written on any system: what may be said of a file without its folders."""
    return path.replace("\\", "/").rstrip("/").rpartition("/")[2] or path


def without_folders(path: str) -> str:
    """A path without its folders where it begins at a root, a drive or `~`, and so says whose machine it is of; as it is else."""
    absolute = path[:1] in ("/", "\\", "~") or PureWindowsPath(path).drive != ""
    return base_name(path) if absolute else path


def _base(variable: str, mac: str, windows: str, fallback: str) -> Path:
    if os.environ.get(variable):
        return Path(os.environ[variable])
    if sys.platform == "darwin":
        return Path.home() / mac
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA", Path.home() / "AppData" / "Local")) / windows
    return Path.home() / fallback


def config_home() -> Path:
    """The folder of settings and window layout (not created here)."""
    return _base("XDG_CONFIG_HOME", "Library/Preferences", ".", ".config") / "circuitlab"


def state_home() -> Path:
    """The folder of the log (not created here)."""
    return _base("XDG_STATE_HOME", "Library/Logs", ".", ".local/state") / "circuitlab"


def cache_home() -> Path:
    """The folder of what can be computed again (not created here)."""
    return _base("XDG_CACHE_HOME", "Library/Caches", "Cache", ".cache") / "circuitlab"


def data_home() -> Path:
    """The folder of what was fetched for this person, such as checkpoints of shipped models (not created here)."""
    return _base("XDG_DATA_HOME", "Library/Application Support", ".", ".local/share") / "circuitlab"


def private_folder(path: Path) -> Path:
    """A folder of ours that nobody else reads, made if it is not there. Raises `OSError`."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.name != "nt" and stat.S_IMODE(path.stat().st_mode) & 0o077:  # made by an earlier version
        with contextlib.suppress(PermissionError):  # another's, who has let this person in
            path.chmod(0o700)
    return path


def private_file(path: str | Path, flags: int = os.O_RDWR | os.O_CREAT) -> int:
    """The descriptor of a file that nobody else reads, made if it is not there. Raises `OSError`."""
    descriptor = os.open(path, flags, 0o600)
    if os.name != "nt":
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, 0o600)
    return descriptor


def log_file() -> Path:
    """The file every session appends its log to."""
    return state_home() / "circuitlab.log"
