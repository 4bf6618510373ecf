"""The files of a checkpoint, examined once before any family is asked whether it claims them.

A folder is searched for `config.json` and weights (safetensors, single or sharded, before pickles); a file is read with the
configuration beside it, a GGUF file by itself. Only the kind of a file is inferred from its name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.errors import BadModel
from circuitlab.model.files.gguf.parts import parts_of
from circuitlab.model.files.misnamed import MAGIC
from circuitlab.model.files.pickled import read_pickle
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.files.tensors import MappedTensors, TensorSource, open_safetensors, open_shards, shard_table
from circuitlab.model.files.whole_file import WholeFile, shown
from circuitlab.model.loading.architectures import of_today
from circuitlab.model.loading.assumptions import YOUR_CHOICE, Assumption
from circuitlab.model.loading.gguf.opening import as_folder
from circuitlab.model.loading.other_formats import refuse_adapter, refuse_folder, refuse_format, refuse_text
from circuitlab.model.loading.quantised import refuse_packed
from circuitlab.model.loading.refusals import refuse_original, refuse_parts, refuse_unsupported
from circuitlab.model.loading.tying import untied_by_tensors
from circuitlab.model.records.series import checkpoint_of
from circuitlab.model.sources.hub import FINAL
from circuitlab.model.text.tokenizer import Tokenizer

_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
_GGUF = ".gguf"
WEIGHT_FILES = (".safetensors", *_PICKLES, _GGUF)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint's files and what can be read from them without knowing its family.

    `config`: the JSON object beside the weights, else one of that form saved with them, else {}. `files`: the weights; `tensors`
    reads them by name, None for a format without names. `metadata`: plain values that a pickle holds beside tensors; `skipped`
    names other values, which were not read. `assume`: the person's values for what no file states; `assumed`: assumptions made
    before any family is asked. `tokenizer`: of a file that has its own, the one beside it not being read. `dequantised`: of what
    packed kinds the weights are made, "" where they are stored as numbers; `notes`: what was read otherwise than it stands there.
    """

    path: Path
    folder: Path
    config: JsonObject = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    tensors: TensorSource | None = None
    metadata: JsonObject = field(default_factory=dict)
    assume: Mapping[str, str] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    tokenizer: Callable[[], Tokenizer | None] | None = None
    dequantised: str = ""
    notes: tuple[str, ...] = ()

    @property
    def model_type(self) -> str:
        """Hugging Face's name of the architecture, "" where none is stated."""
        kind = self.config.get("model_type")
        return kind if isinstance(kind, str) else ""

    def needed(self) -> TensorSource:
        """The named tensors. Raises `BadModel` where the files have none."""
        if self.tensors is None:
            raise BadModel("There are no named tensors here.", expected="safetensors or a state dict", got=shown(self.path))
        return self.tensors


def look(path: Path, assume: Mapping[str, str] | None = None, checkpoint: int | None = None) -> Checkpoint:
    """Examine a folder or a file; `checkpoint`: index into the folder's series, whose weights replace the final ones.

    Raises `BadModel` where it cannot be read, holds no weights, or is of a kind that is not supported.
    """
    try:
        if not os.path.lexists(path):
            raise BadModel(
                f"{shown(Path(path.name))} does not exist.",
                expected="a folder with config.json and weights, or a weight file",
                got=f"nothing at {shown(path)[:200]}",
                remedy="Check the path, or download the checkpoint again.",
            )
        refuse_original(path)
        if path.is_dir():
            config_file, weights = path / "config.json", _weights_in(path, checkpoint)
            config_file = None if weights is not None and is_gguf(weights) else config_file
        else:
            config_file, weights = _config_of(path), path
    except OSError as error:
        raise BadModel(
            "The path cannot be read.", expected="a folder or a file", got=f"{shown(path)[:200]}: {error.strerror}"
        ) from error
    config, notes = of_today(read_json(config_file) if config_file is not None and os.path.lexists(config_file) else {})
    refuse_unsupported(config)
    if weights is None and path.is_dir():
        refuse_folder(path)
    if weights is None and not config:
        refuse_parts(path)
        read_json(path / "config.json")  # raises: says what is missing
    opened = _open(weights or path / "model.safetensors", assume or {})
    config = config or opened.config
    refuse_unsupported(config)
    folder = path if path.is_dir() else path.parent
    adapter = folder / "adapter_config.json"
    if opened.tensors is not None:
        alone = weights is not None and weights.name.startswith("adapter_")
        refuse_adapter(adapter if alone else None, opened.tensors.names())
    beside = (f"{adapter.name} (an adapter, which is not added to the weights)",) if adapter.is_file() else ()
    opened = replace(opened, skipped=(*opened.skipped, *beside))
    if not config:
        config, notes = of_today(_saved_config(opened.metadata))
        refuse_unsupported(config)
    kept = replace(opened, path=path, folder=folder, config=config, assume=dict(assume or {}))
    if kept.tensors is not None and kept.model_type:
        notes += refuse_packed(config, folder, kept.tensors)
        config, parted = untied_by_tensors(config, kept.tensors)
        notes += parted
    return replace(kept, config=config, notes=notes)


def _saved_config(metadata: Mapping[str, object]) -> JsonObject:
    """The configuration in Hugging Face's form that was saved with the weights, {} without one."""
    values = (v for v in metadata.values() if isinstance(v, Mapping))
    return next((h for h in values if isinstance(h.get("model_type"), str)), {})


def _weights_in(folder: Path, checkpoint: int | None = None) -> Path | None:
    """The weight file of a folder, or the index of its shards; None without one."""
    if checkpoint is not None:
        return checkpoint_of(folder, checkpoint)
    names = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
    for name in names:
        if os.path.lexists(folder / name):
            return folder / name
    others = sorted(f for f in folder.iterdir() if f.suffix in WEIGHT_FILES and f.is_file())
    if len(others) > 1 and others == sorted(parts_of(others[0])):  # of one GGUF model
        return others[0]
    if len(final := [f for f in others if f.name.endswith(FINAL)]) == 1:  # beside the weights that training began with
        return final[0]
    if len(others) > 1:
        raise BadModel(
            "The folder holds several weight files and no index.",
            expected="model.safetensors, or an index of the shards",
            got=", ".join(shown(Path(f.name)) for f in others[:6]),
            remedy="Open one of the files itself.",
        )
    return others[0] if others else None


def _config_of(file: Path) -> Path | None:
    """The configuration that belongs to one weight file."""
    if is_gguf(file):  # which says everything itself
        return None
    near = (file.with_suffix(".json"), file.with_name(f"{file.stem}_config.json"), file.with_name("config.json"))
    return next((f for f in near if f.is_file()), None)


def _open(file: Path, assume: Mapping[str, str]) -> Checkpoint:
    """The contents of one weight file or index; `assume`: the person's values, such as the key `under` which a pickle has its
    weights."""
    if file.name.endswith(".index.json"):
        source, shards = open_shards(file, read_json(file), _shard)
        return Checkpoint(file, file.parent, files=(file, *shards), tensors=source)
    refuse_format(file)
    refuse_text(file)
    if is_gguf(file):
        return _gguf(file, assume)
    if file.suffix not in _PICKLES:
        return Checkpoint(file, file.parent, files=(file,), tensors=open_safetensors(file))
    under = assume.get("under")
    pickled = read_pickle(file, under)
    if pickled is None:
        return Checkpoint(file, file.parent, files=(file,))
    why = YOUR_CHOICE if under is not None else "the only dictionary of tensors in the file"
    assumed = (
        ()
        if pickled.usual
        else (Assumption("under", pickled.under, (*pickled.others, pickled.under), f"weights under this key: {why}"),)
    )
    return Checkpoint(file, file.parent, {}, (file,), pickled.tensors, pickled.metadata, skipped=pickled.skipped, assumed=assumed)


def is_gguf(file: Path) -> bool:
    """Whether a file is one of llama.cpp's, by its name or by its first bytes."""
    if file.suffix == _GGUF:
        return True
    try:
        return file.is_file() and WholeFile(file).read(0, 4) == MAGIC
    except BadModel:  # too short, or not readable: its reader says so
        return False


def _gguf(file: Path, assume: Mapping[str, str]) -> Checkpoint:
    read = as_folder(file, assume)
    return Checkpoint(
        file,
        file.parent,
        read.config,
        read.files,
        read.tensors,
        assumed=read.assumed,
        tokenizer=read.tokenizer,
        dequantised=read.dequantised,
    )


def _shard(file: Path) -> MappedTensors:
    refuse_format(file)
    refuse_text(file)
    if file.suffix not in _PICKLES:
        return open_safetensors(file)
    pickled = read_pickle(file)
    if pickled is None:
        raise BadModel(
            f"{shown(Path(file.name))} is not a checkpoint of torch.", expected="tensors by name", got="another format"
        )
    return pickled.tensors


def tensors_at(path: Path, under: str | None = None) -> Checkpoint:
    """The named tensors of a folder or file, whatever its configuration. Raises `BadModel`."""
    weights = _weights_in(path) if path.is_dir() else path
    opened = replace(_open(weights or path / "model.safetensors", {} if under is None else {"under": under}), path=path)
    opened.needed()
    return opened


def weight_files(path: Path, checkpoint: int | None = None) -> tuple[Path, ...]:
    """The files that hold the weights of the model at `path`, unread. Raises `BadModel` for a damaged index."""
    weights = _weights_in(path, checkpoint) if path.is_dir() else path
    if weights is None:
        return ()
    if weights.name.endswith(".index.json"):
        return tuple(weights.with_name(n) for n in sorted(set(shard_table(weights, read_json(weights)).values())))
    return parts_of(weights)


def read_json(path: Path) -> JsonDict:
    """A JSON object from a file. Raises `BadModel`."""
    if not os.path.lexists(path):
        raise BadModel(
            f"{path.name} is missing.",
            expected=f"a model directory with {path.name}",
            got=shown(path.parent) if path.parent.is_dir() else f"no directory {shown(path.parent)}",
            remedy="Open the folder that holds the model's config.json and its weights.",
        )
    return read_object(path)
