"""Which files of a repository are a model: those of the hub's own form, or one of its GGUF models.

A GGUF model is named by its file or by its quantisation as llama.cpp and Ollama write it (`Q4_K_M`, in either case), which is
looked for in the names of files as a whole word: `Q4_K` names no `Q4_K_M`, and `Q4_NL` no `IQ4_NL`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, SeveralModels, printable
from circuitlab.model.files.gguf.parts import parts_of

GGUF = ".gguf"
_QUANTISATION = r"(?:UD-)?(?:I?Q[1-9]|TQ[1-9]|BF16|FP?(?:16|32|64)|I(?:8|16|32)|MXFP4|NVFP4)(?:_[A-Z0-9]+)*"
_TAG = re.compile(_QUANTISATION, re.IGNORECASE)
_IN_NAME = re.compile(rf"(?<![A-Za-z0-9])(?:{_QUANTISATION})(?![A-Za-z0-9_])", re.IGNORECASE)
_NO_MODEL = re.compile(r"mmproj|imatrix", re.IGNORECASE)  # of images beside a model; what a quantisation weighed
_MOST = 40  # models in a line of them


@dataclass(frozen=True)
class GgufModel:
    """A model among the files of a repository: the names of its parts there, and their bytes (0: not known)."""

    parts: tuple[str, ...]
    size: int

    @property
    def name(self) -> str:
        """The file that is opened: the first part."""
        return self.parts[0]

    @property
    def quantisation(self) -> str:
        """The quantisation that its name says, "" where it says none."""
        result = _IN_NAME.findall(PurePosixPath(self.name).name)
        return result[-1].upper() if result else ""


def is_form(text: str) -> bool:
    """Whether a text may stand behind the colon of a name: a GGUF file, or a quantisation."""
    return text.lower().endswith(GGUF) or bool(_TAG.fullmatch(text))


def gguf_models(sizes: Mapping[str, int]) -> tuple[GgufModel, ...]:
    """The GGUF models among files with these sizes in bytes, the smallest first. One that lacks a part is none."""
    models = dict[str, GgufModel]()
    for name in sizes:
        parts = tuple(part.as_posix() for part in parts_of(Path(name)))
        if name.lower().endswith(GGUF) and parts[0] == name and sizes.keys() >= set(parts):
            models[name] = GgufModel(parts, sum(sizes[part] for part in parts))
    return tuple(sorted(models.values(), key=lambda one: (one.size, one.name)))


def matching(models: Collection[GgufModel], form: str) -> tuple[GgufModel, ...]:
    """The models that a form names; of no form, all that are language models by their names."""
    if form.lower().endswith(GGUF):
        return tuple(one for one in models if form in one.parts)
    models = tuple(one for one in models if not _NO_MODEL.search(PurePosixPath(one.name).name))
    if not form:
        return models
    word = re.compile(rf"(?<![A-Za-z0-9]){re.escape(form)}(?![A-Za-z0-9_])", re.IGNORECASE)
    result = tuple(one for one in models if word.search(PurePosixPath(one.name).name))
    exact = tuple(one for one in result if one.quantisation == form.upper())  # rather than UD-Q4_K_M where both are there
    return exact or result


def one_of(models: Collection[GgufModel], form: str, repo: str) -> GgufModel:
    """The model that a form names in a repository. Raises `BadModel` where none does, `SeveralModels` where several do."""
    result = matching(models, form)
    if len(result) == 1:
        return result[0]
    if result:
        raise several(result, repo)
    raise BadModel(
        f"The repository {repo} has no model {printable(form)}.",
        expected=", ".join(labels(matching(models, ""))[:_MOST]) or "a GGUF file",
        got="no file of that name" if form.lower().endswith(GGUF) else "no file name with that word",
        remedy="Name one that it has, by its quantisation or by its file.",
    )


def labels(models: Collection[GgufModel]) -> tuple[str, ...]:
    """What names each of them alone: its quantisation where no other has it, else its file."""
    tags = [one.quantisation for one in models]
    alone = {tag for tag in tags if tag and tags.count(tag) == 1}
    return tuple(one.quantisation if one.quantisation in alone else one.name for one in models)


def several(models: Collection[GgufModel], repo: str) -> SeveralModels:
    """The error for several models of which one must be named."""
    names = labels(models)
    lines: list[str] = []
    for name, model in zip(names, models, strict=True):
        size = f"{model.size / 2**20:,.1f} MiB" if model.size else "size not known"
        more = f" and {number_of(len(model.parts) - 1, 'more part')}" if len(model.parts) > 1 else ""
        lines.append(f"{name}: {size}" + ("" if name == model.name and not more else f", {model.name}{more}"))
    return SeveralModels(
        f"The repository {repo} holds {number_of(len(lines), 'model')}.",
        expected="the name of one of them",
        remedy=f"Name one behind a colon, as in {repo}:{names[0]}",
        models=names,
        lines=tuple(lines),
    )
