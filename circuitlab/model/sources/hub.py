"""Models of the Hugging Face hub in its local cache, located without the network and without its library.

A reference is `hub:OWNER/NAME@REVISION`; the revision is a branch, a tag or a commit, `main` where none is named. The cache
is the library's own (`models--OWNER--NAME/{refs,snapshots,blobs}`), so models downloaded by other tools are found.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path

from circuitlab.errors import BadModel, UsageError, quoted

_ID = re.compile(r"^(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}$")
_REVISION = re.compile(r"^[\w][\w./+-]{0,200}$")
_LARGEST_INDEX = 16 * 2**20
SINGLE = ("model.safetensors", "pytorch_model.bin")
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class HubName:
    """A repository and a revision of it."""

    repo: str
    revision: str = "main"

    def __str__(self) -> str:
        return self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"

    @classmethod
    def parse(cls, text: str) -> HubName:
        """`"OWNER/NAME"` or `"OWNER/NAME@REVISION"`. Raises `UsageError`."""
        repo, at, revision = text.strip().removeprefix("hub:").partition("@")
        revision = revision if at else "main"
        unsafe = any(part in ("", ".", "..") for part in (*repo.split("/"), *revision.split("/")))
        if unsafe or not _ID.match(repo) or not _REVISION.match(revision):
            raise UsageError(
                "That is not a model of the hub.",
                expected="OWNER/NAME or OWNER/NAME@REVISION",
                got=quoted(text, 120),
                remedy="Write it as the hub does, as in openai-community/gpt2, perhaps with @REVISION.",
            )
        return cls(repo, revision)

    @property
    def folder(self) -> Path:
        """The cache's folder of this repository."""
        return cache_folder() / ("models--" + self.repo.replace("/", "--"))


def looks_like_a_name(text: str) -> bool:
    """Whether a word that is not a path may name a model of the hub: `OWNER/NAME`, with or without a revision."""
    repo = text.partition("@")[0]
    return repo.count("/") == 1 and bool(_ID.match(repo)) and not repo.startswith(".")


def cache_folder() -> Path:
    """The hub's cache folder, by the environment variables that its own library reads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.path.expanduser(os.environ[name]))  # a person that there is not stays as it is written
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.path.expanduser(home)) / "hub"


def snapshot(name: HubName) -> Path | None:
    """The folder of a revision if the cache has all of it, else None."""
    ref = name.folder / "refs" / name.revision
    try:
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else name.revision
    except (OSError, UnicodeDecodeError):
        return None
    folder = name.folder / "snapshots" / commit
    if Path(commit).name != commit or ".." in commit or not (folder / "config.json").is_file():
        return None
    return folder if any((folder / f).is_file() for f in SINGLE) or any(_is_complete(folder / f) for f in INDEXES) else None


def _is_complete(index: Path) -> bool:
    """Whether a snapshot has an index and all its shards."""
    try:
        if index.stat().st_size > _LARGEST_INDEX:
            return False
        table = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        shards = set(table.values())
        return bool(shards) and all(Path(s).name == s and (index.parent / s).is_file() for s in shards)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def in_cache(name: HubName) -> Path:
    """`snapshot`, or raise `BadModel` with how to download it."""
    folder = snapshot(name)
    if folder is None:
        raise BadModel(
            f"{name} has not been downloaded.",
            expected=f"a complete snapshot of {name.revision} in {cache_folder()}",
            got="part of it" if name.folder.is_dir() else "nothing",
            remedy=f"File → Open from the hub…, or: circuitlab {name}",
        )
    return folder
