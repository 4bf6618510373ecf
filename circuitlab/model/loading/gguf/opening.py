"""A GGUF file read as a Hugging Face checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from circuitlab.disk.json_types import JsonObject
from circuitlab.errors import BadModel, quoted
from circuitlab.model.files.gguf.header import read_parts
from circuitlab.model.files.gguf.parts import parts_of
from circuitlab.model.files.gguf.tensors import GgufTensors, dequantised_from
from circuitlab.model.files.whole_file import WholeFile
from circuitlab.model.loading.assumptions import Assumed, Assumption
from circuitlab.model.loading.gguf.architectures import architecture_of, heads_of, table_of
from circuitlab.model.loading.gguf.configuration import d_head
from circuitlab.model.loading.gguf.said import Said
from circuitlab.model.loading.gguf.undoing import Undone
from circuitlab.model.loading.gguf.vocabulary import vocabulary
from circuitlab.model.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class AsFolder:
    """What a folder of the same model would have said. `dequantised`: of what kinds its weights are made, "" for a plain file."""

    files: tuple[Path, ...]
    config: JsonObject
    tensors: Undone
    tokenizer: Callable[[], Tokenizer | None]
    dequantised: str
    assumed: tuple[Assumption, ...]


def as_folder(path: Path, assume: Mapping[str, str]) -> AsFolder:
    """The model of a GGUF file. Raises `BadModel`."""
    paths = parts_of(path)
    files = [WholeFile(part) for part in paths]
    header = read_parts(files)
    said, tensors = Said(header, Assumed(assume)), GgufTensors(header, *files)
    kind = said.text("general.type", "model")
    if kind != "model":
        raise BadModel(
            f"{header.name} is not a model.",
            expected="general.type model",
            got=quoted(kind),
            remedy="Open the file of the model itself; this one goes beside it.",
        )
    architecture = architecture_of(said)
    config = architecture.config(said, tensors)
    undone = Undone(tensors, table_of(said, architecture), heads_of(config, d_head(said)))
    assumed = tuple(said.ask.assumptions)
    return AsFolder(paths, config, undone, lambda: vocabulary(header), dequantised_from(header), assumed)
