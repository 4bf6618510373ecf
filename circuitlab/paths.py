"""Where the shipped files and the person's own files are: one helper for a checkout and for an installed wheel.

`resources/` and `models/` stand beside the package in a checkout and inside it in a wheel (pyproject.toml moves them there).
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


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


def log_file() -> Path:
    """The file every session appends its log to."""
    return state_home() / "circuitlab.log"
