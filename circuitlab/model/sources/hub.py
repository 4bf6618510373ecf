"""Models of the Hugging Face hub in its local cache, located without the network and without its library.

A reference is `hub:OWNER/NAME@REVISION`; the revision is a branch, a tag or a commit, `main` where none is named. Behind a colon
stands which GGUF model of the repository is meant, by its file or its quantisation. The cache is the library's own
(`models--OWNER--NAME/{refs,snapshots,blobs}`), so models downloaded by other tools are found.
"""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from circuitlab.errors import BadModel, UsageError, quoted
from circuitlab.model.sources.hub_forms import GGUF, GgufModel, gguf_models, is_form, matching, one_of

_ID = re.compile(r"^(?:[A-Za-z0-9][\w.-]{0,95}/)?[A-Za-z0-9][\w.-]{0,95}$")
_REVISION = re.compile(r"^[\w][\w./+-]{0,200}$")
_BARE = re.compile(r"[A-Za-z0-9_][\w.-]{0,200}", re.ASCII)
_DEEPEST = 3  # names in the path of a file of a repository
_MOST_FILES = 2000  # of a snapshot that are looked at
_LARGEST_INDEX = 16 * 2**20
SINGLE = ("model.safetensors", "pytorch_model.bin")
FINAL = "final.pth"  # how the weights of TransformerLens' own models on the hub end
TOKENIZERS = (
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.json", "merges.txt", "tokenizer.model",
)  # fmt: skip
INDEXES = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


@dataclass(frozen=True)
class HubName:
    """A repository and a revision of it. `form`: the GGUF file or the quantisation that is meant, "" the repository itself."""

    repo: str
    revision: str = "main"
    form: str = ""

    def __str__(self) -> str:
        revised = self.repo if self.revision == "main" else f"{self.repo}@{self.revision}"
        return f"{revised}:{self.form}" if self.form else revised

    @classmethod
    def parse(cls, text: str) -> HubName:
        """`"OWNER/NAME"`, `"OWNER/NAME@REVISION"`, either with `":FILE.gguf"` or `":Q4_K_M"` behind it. Raises `UsageError`."""
        revised, colon, form = text.strip().removeprefix("hub:").partition(":")
        repo, at, revision = revised.partition("@")
        revision = revision if at else "main"
        unsafe = any(part in ("", ".", "..") for part in (*repo.split("/"), *revision.split("/")))
        if unsafe or not _ID.match(repo) or not _REVISION.match(revision):
            raise UsageError(
                "That is not a model of the hub.",
                expected="OWNER/NAME or OWNER/NAME@REVISION",
                got=quoted(text, 120),
                remedy="Write it as the hub does, as in openai-community/gpt2, perhaps with @REVISION.",
            )
        if colon and not (is_form(form) and is_path(form)):
            raise UsageError(
                f"That names no model of {repo}.",
                expected="the name of a GGUF file, or a quantisation such as Q4_K_M",
                got=quoted(form, 120),
                remedy=f"Write {repo}:FILE.gguf or {repo}:Q4_K_M, or leave out what follows the colon.",
            )
        return cls(repo, revision, form)

    @property
    def folder(self) -> Path:
        """The cache's folder of this repository."""
        return cache_folder() / ("models--" + self.repo.replace("/", "--"))


def is_path(name: str) -> bool:
    """Whether `name` is a bare file name, or one in folders of a repository; never one that leads out of it."""
    parts = name.split("/")
    return len(parts) <= _DEEPEST and all(map(_BARE.fullmatch, parts))


def looks_like_a_name(text: str) -> bool:
    """Whether a word that is not a path may name a model of the hub: `OWNER/NAME`, with or without a revision and a form."""
    repo = text.partition(":")[0].partition("@")[0]
    return repo.count("/") == 1 and bool(_ID.match(repo)) and not repo.startswith(".")


def cache_folder() -> Path:
    """The hub's cache folder, by the environment variables that its own library reads."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.path.expanduser(os.environ[name]))  # a person that there is not stays as it is written
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    return Path(os.path.expanduser(home)) / "hub"


def snapshot(name: HubName) -> Path | None:
    """The folder of a revision if the cache has all of it, the first file of a GGUF model likewise, else None.

    Of a repository of GGUF models that is named without a form, the only one that the cache has.
    """
    folder = _revision_folder(name)
    if folder is None:
        return None
    whole = any((folder / f).is_file() for f in SINGLE) or any(_is_complete(folder / f) for f in INDEXES) or _has_final(folder)
    if whole and not name.form and (folder / "config.json").is_file():
        return folder
    result = matching(_gguf_in(folder), name.form)
    return folder / result[0].name if len(result) == 1 else None


def _has_final(folder: Path) -> bool:
    try:
        return any(one.name.endswith(FINAL) and one.is_file() for one in folder.iterdir())
    except OSError:
        return False


def tokenizer_folder(name: HubName) -> Path | None:
    """The folder of a revision if the cache has a tokenizer in it, whatever else it lacks."""
    folder = _revision_folder(name)
    if folder is None:
        return None
    result = {one for one in TOKENIZERS if (folder / one).is_file()}
    return folder if result & {"tokenizer.json", "tokenizer.model"} or result >= {"vocab.json", "merges.txt"} else None


def told_apart(name: HubName) -> HubName:
    """The name with the file of the GGUF model that it names in the cache: one model has one name. The same where it is none."""
    path, folder = snapshot(name), _revision_folder(name)
    if path is None or folder is None or path == folder:
        return name
    return replace(name, form=path.relative_to(folder).as_posix())


def cached_models(name: HubName) -> tuple[GgufModel, ...]:
    """The GGUF models of a revision that the cache has whole."""
    folder = _revision_folder(name)
    return () if folder is None else matching(_gguf_in(folder), "")


def _revision_folder(name: HubName) -> Path | None:
    """The folder of a revision, None where the cache has none or its reference is damaged."""
    ref = name.folder / "refs" / name.revision
    try:
        commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else name.revision
    except (OSError, UnicodeDecodeError):
        return None
    if Path(commit).name != commit or ".." in commit:
        return None
    return name.folder / "snapshots" / commit


def _gguf_in(folder: Path) -> tuple[GgufModel, ...]:
    """The GGUF models in a snapshot, all of whose parts are there."""
    sizes = dict[str, int]()
    for i, (place, _, files) in enumerate(os.walk(folder)):
        for file in files:
            path = Path(place, file)
            name = path.relative_to(folder).as_posix()
            if name.lower().endswith(GGUF) and is_path(name) and path.is_file():
                sizes[name] = path.stat().st_size
        if i > _MOST_FILES or len(sizes) > _MOST_FILES:
            break
    return gguf_models(sizes)


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
    """`snapshot`, or raise `BadModel` with how to download it, `SeveralModels` where the cache has several of that name."""
    folder = snapshot(name)
    if folder is None:
        if len(result := matching(cached_models(name), name.form)) > 1:
            one_of(result, name.form, str(replace(name, form="")))
        raise BadModel(
            f"{name} has not been downloaded.",
            expected=f"a complete snapshot of {name.revision} in {cache_folder()}",
            got="another file or part of it"
            if name.form and name.folder.is_dir()
            else "part of it"
            if name.folder.is_dir()
            else "nothing",
            remedy=f"File → Open from the hub…, or: circuitlab {name}",
        )
    return folder
