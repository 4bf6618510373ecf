"""Downloads from the Hugging Face hub into its own cache, with progress; a download can be stopped and resumed.

The library (`pip install circuitlab[hub]`) handles the protocol, the token and the list of files; it is imported at the first
download. `hub_transfer` receives the bytes: bounded, checked against their hash, never written outside the cache.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder, read_at_most, unwritable, write_whole
from circuitlab.errors import BadInput, BadMachine, BadModel, CircuitLabError, UsageError, cause, printable
from circuitlab.model.sources.hub import (
    FINAL,
    INDEXES,
    SINGLE,
    TOKENIZERS,
    HubName,
    cached_models,
    is_path,
    snapshot,
    tokenizer_folder,
)
from circuitlab.model.sources.hub_forms import gguf_models, one_of
from circuitlab.model.sources.hub_transfer import (
    HubFile,
    brought_into_cache,
    checked_hash,
    git_name,
    into_cache,
    is_hash,
    unreachable,
)
from circuitlab.model.sources.silent_server import asked
from circuitlab.model.sources.transfer_meter import Meter, OnProgress, Progress

__all__ = ["HubFile", "Plan", "Progress", "bring", "fetch", "plan", "plan_of_files", "revisions"]

_COMPANIONS = ("config.json", *TOKENIZERS)
_LARGEST_CONFIG = 2**20
_LARGEST_BESIDE = 2**26  # bytes; the largest tokenizer that is read


@dataclass(frozen=True)
class Plan:
    """What a download will fetch: the commit that the revision names now, and the model's files in it."""

    name: HubName
    commit: str
    files: tuple[HubFile, ...]

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(f.size for f in self.files)


def _endpoint() -> str | None:
    """The hub's address if the environment sets another one now (the library reads it only at import)."""
    return os.environ.get("HF_ENDPOINT") or None


def revisions(repo: str, cancelled: Callable[[], bool] = lambda: False) -> tuple[str, ...]:
    """Branches and tags of a repository, `main` first. Raises `Cancelled`, or another `CircuitLabError`."""
    with _library(HubName(repo)) as hub:
        refs = asked(lambda: hub.HfApi(endpoint=_endpoint()).list_repo_refs(repo), cancelled)
        names = [*(b.name for b in refs.branches), *(t.name for t in refs.tags)]
    return tuple(sorted(set(names), key=lambda n: (n != "main", _by_number(n))))


def _by_number(name: str) -> tuple[str, int]:
    """A sort key that puts `step1000` after `step512`."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :][:18] or 0)


def plan(name: HubName, cancelled: Callable[[], bool] = lambda: False) -> Plan:
    """The commit and files to fetch; of a GGUF model, under the name of its file.

    Raises `SeveralModels` where a repository has several GGUF models and none is named, `Cancelled`, or another
    `CircuitLabError`.
    """
    try:
        commit, listed = _listed(name, cancelled)
    except BadMachine:
        if len(cached := cached_models(name)) > 1:  # which open without the hub
            one_of(cached, name.form, str(replace(name, form="")))
        raise
    name, files = _chosen(name, {one.name: one.size for one in listed.values()})
    return Plan(name, commit, tuple(listed[one] for one in files))


def _listed(name: HubName, cancelled: Callable[[], bool]) -> tuple[str, dict[str, HubFile]]:
    """The commit of a revision, and its files by name. Raises `Cancelled`, or another `CircuitLabError`."""
    with _library(name) as hub:
        about = partial(hub.HfApi(endpoint=_endpoint()).model_info, name.repo, revision=name.revision)
        info = asked(lambda: about(files_metadata=True, timeout=20), cancelled)
    listed = (one for one in info.siblings or () if is_path(one.rfilename))
    files = {one.rfilename: HubFile(one.rfilename, max(0, int(one.size or 0)), _etag(one)) for one in listed}
    return checked_hash(info.sha, "its commit"), files


def _chosen(name: HubName, sizes: dict[str, int]) -> tuple[HubName, list[str]]:
    """The files to fetch, and the name with the one of several models that they are. Raises `BadModel`, `SeveralModels`."""
    weights = [] if name.form else _weights(sizes)
    if weights and "config.json" in sizes:
        return name, [*(n for n in _COMPANIONS if n in sizes), *weights]
    if (models := gguf_models(sizes)) or name.form:
        model = one_of(models, name.form, str(replace(name, form="")))
        return replace(name, form=model.name), list(model.parts)
    raise BadModel(
        f"{name} holds no model that can be opened.",
        expected="config.json with safetensors, pytorch_model.bin or TransformerLens' model_final.pth, or a GGUF file",
        got=", ".join(sorted(sizes)[:8]) or "no files",
        remedy="Check the model's page on the hub, or try again later.",
    )


def _etag(listed: object) -> str:
    """The hash that names a file of the list: a large one's sha256, a small one's in git; "" where the list says none."""
    large = getattr(listed, "lfs", None)
    etag = getattr(large, "sha256", None) if large is not None else getattr(listed, "blob_id", None)
    return etag if is_hash(etag) else ""


def _weights(sizes: dict[str, int]) -> list[str]:
    """The weight files to fetch: safetensors before pickles, one file before shards, then TransformerLens' own."""
    for single, index in zip(SINGLE, INDEXES, strict=True):
        if single in sizes:
            return [single]
        if index in sizes:
            stem, suffix = single.split(".")
            return [index, *sorted(n for n in sizes if n.startswith(f"{stem}-") and n.endswith(f".{suffix}"))]
    return sorted(n for n in sizes if n.endswith(FINAL) and "/" not in n)[:1]


def fetch(what: Plan, on_progress: OnProgress, cancelled: Callable[[], bool] = lambda: False) -> Path:
    """Download the missing files; returns the snapshot's folder, or the GGUF file that is opened.

    Partial downloads are kept: the same call resumes where an earlier one stopped. Raises `Cancelled`, or another
    `CircuitLabError`.
    """
    meter = Meter(what.total, on_progress, cancelled)
    for file in what.files:
        _take(what, file, meter)
        if file.name == "config.json" and what.files[-1].name.endswith(FINAL):
            _take_tokenizer(what, meter)
    _note_commit(what)
    return _whole(what)


def _whole(what: Plan) -> Path:
    """What was put in place. Raises `BadModel` where a part of it lacks."""
    folder = snapshot(replace(what.name, revision=what.commit))
    if folder is None:
        raise BadModel(
            f"{what.name} is incomplete after the download.",
            expected="all files of its index, or all parts",
            got="some of them",
            remedy="Check the model's page on the hub, or try again later.",
        )
    return folder


def bring(
    what: Plan, place: Path, on_progress: OnProgress, cancelled: Callable[[], bool] = lambda: False, alone: bool = False
) -> Path:
    """Put files that somebody brought into the cache, as `fetch` would have; returns what it returns.

    `place`: a folder with files of the repository, or the one file of its weights, beside which the others are looked for. What
    is not there is fetched; `alone`: nothing is. Raises `BadInput` where a file is another than the plan says, or lacks and
    nothing is fetched, and what `fetch` raises.
    """
    meter = Meter(what.total, on_progress, cancelled)
    folder = place if place.is_dir() else place.parent
    at = {file: place if place.is_file() and file is what.files[-1] else folder / file.name for file in what.files}
    there = {file for file, path in at.items() if file.etag and path.is_file()}
    if alone and (lacking := [file.name for file in what.files if file not in there]):
        raise BadInput(
            f"The file {lacking[0]} is not there.",
            expected=f"{lacking[0]} of {what.name} in {folder}",
            got="a folder without it",
            remedy="Bring it, too: the files of a model belong in one folder.",
        )
    for file in reversed(what.files) if alone else what.files:  # first the weights, of which it is known what they must be
        meter.file = file.name
        if file in there:
            brought_into_cache(what.name, what.commit, file, at[file], meter)
        else:
            _take(what, file, meter)
        if file.name == "config.json" and what.files[-1].name.endswith(FINAL) and not alone:
            _take_tokenizer(what, meter)
    if not alone:
        _note_commit(what)
    return _whole(what)


def plan_of_files(name: HubName, place: Path, known: Mapping[str, str], nbytes: int) -> Plan:
    """The plan of files that somebody brought where the hub cannot be asked: the weights by their sha256, `known` by name, and
    the small files that lie beside them, as they are.

    `nbytes`: of the model, about: what is far larger is not read. Raises `BadInput`, also for one that cannot be read.
    """
    folder = place if place.is_dir() else place.parent
    small = [one for one in _COMPANIONS if (folder / one).is_file()]
    weights = [place] if place.is_file() else [folder / one for one in known if (folder / one).is_file()]
    try:
        bounds = dict.fromkeys(weights, 2 * nbytes + _LARGEST_BESIDE) | {folder / one: _LARGEST_BESIDE for one in small}
        for path, most in bounds.items():
            if (size := path.stat().st_size) > most:
                raise BadInput(
                    f"The file {printable(path.name)} is not of {name}.",
                    expected=f"a file of at most {number_of(most, 'byte')}",
                    got=number_of(size, "byte"),
                    remedy="Copy or download it again from the model's page on the hub.",
                )
        beside = [HubFile(one, 0, git_name(folder / one)) for one in small]
    except OSError as error:
        what, remedy = f"A file of {name} cannot be read.", "Check the folder, and that you may read what is in it."
        raise BadInput(what, expected=f"its files in {printable(folder)}", got=cause(error), remedy=remedy) from error
    if not any(one.name == "config.json" for one in beside):
        beside.insert(0, HubFile("config.json", 0))
    return Plan(name, name.revision, (*beside, *(HubFile(one, 0, sha256) for one, sha256 in known.items())))


def _take(what: Plan, file: HubFile, meter: Meter) -> None:
    meter.file = file.name
    with _library(what.name) as hub:
        into_cache(hub, what.name, what.commit, file, _endpoint(), meter)


def _note_commit(what: Plan) -> None:
    """Remember which commit the revision names, as the library does."""
    ref = what.name.folder / "refs" / what.name.revision
    with _library(what.name):
        if what.name.revision != what.commit:
            made_folder(ref.parent)
            write_whole(ref, what.commit.encode())


def _take_tokenizer(what: Plan, meter: Meter) -> None:
    """Fetch the tokenizer that the configuration of one of TransformerLens' models names, unless it is here or lies beside it.

    A model whose tokenizer is not on the hub any more is fetched without it: it takes ids.
    """
    if any(one.name in TOKENIZERS for one in what.files):
        return
    data = read_at_most(what.name.folder / "snapshots" / what.commit / "config.json", _LARGEST_CONFIG)
    try:
        name = HubName.parse(str(json.loads(data or b"")["tokenizer_name"]))
        if tokenizer_folder(name) is not None:
            return
        commit, listed = _listed(name, meter.cancelled)
    except (ValueError, LookupError, TypeError, RecursionError, UsageError, BadModel):
        return
    beside = Plan(name, commit, tuple(listed[one] for one in TOKENIZERS if one in listed))
    meter.total += beside.total
    for file in beside.files:
        _take(beside, file, meter)
    _note_commit(beside)


@contextlib.contextmanager
def _library(name: HubName) -> Iterator[Any]:
    """A context with the hub's library, whose errors it translates into ours."""
    try:
        import huggingface_hub as hub
        from huggingface_hub.utils import disable_progress_bars
    except ImportError as error:
        raise BadMachine(
            "Downloading from the hub needs a library that is not installed.",
            expected="huggingface-hub",
            got="not installed",
            remedy='pip install "circuitlab[hub]"; models that are in the local cache open without it.',
        ) from error
    disable_progress_bars()  # the progress is ours
    try:
        if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
            raise hub.errors.OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
        yield hub
    except CircuitLabError:
        raise
    except Exception as error:
        raise _translated(name, error) from error


def _translated(name: HubName, error: Exception) -> CircuitLabError:
    """Our error for one of the library's, with what a person can do about it."""
    from huggingface_hub import errors as hub_errors

    status = getattr(getattr(error, "response", None), "status_code", None)
    message = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
    if isinstance(error, hub_errors.GatedRepoError) or status == 403:
        return BadModel(
            f"{name} is gated: its owner wants its conditions accepted first.",
            expected="access granted to your account, and its token here",
            got=message,
            remedy=f"Accept the conditions on the model's page, then `hf auth login` (or set HF_TOKEN). Page: {name.repo}",
        )
    if isinstance(error, hub_errors.RevisionNotFoundError):
        return BadModel(
            f"{name.repo} has no revision {name.revision}.",
            expected="a branch, a tag or a commit",
            got=message,
            remedy="Check the model's page on the hub, or try again later.",
        )
    if isinstance(error, hub_errors.RepositoryNotFoundError) or status == 401:
        return BadModel(
            f"{name.repo} is not on the hub, or is private.",
            expected="a public model, or a token with access",
            got=message,
            remedy="Check the spelling; for a private model `hf auth login` or set HF_TOKEN.",
        )
    if isinstance(error, hub_errors.EntryNotFoundError):
        return BadModel(
            f"{name} lacks a file that it lists.",
            expected="all of its files",
            got=message,
            remedy="Check the model's page on the hub, or try again later.",
        )
    if isinstance(error, hub_errors.OfflineModeIsEnabled):
        return BadMachine("The hub's offline mode is on.", expected="a cached model", got=message, remedy="Unset HF_HUB_OFFLINE.")
    if isinstance(error, OSError) and isinstance(error.filename, str | bytes | os.PathLike):  # of the disk, not of the network
        return unwritable(Path(os.fsdecode(error.filename)), error)
    return unreachable(error)
