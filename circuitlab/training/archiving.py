"""The archives of the checkpoints in `models/`, and the list of them that ships.

    python -m circuitlab.training.archiving models OUT [--address https://…/v1]

writes OUT/NAME-checkpoints.zip for each model with a series, and `models/archives.json` (see `model/archives/index.py`), which is
committed. The files of OUT are put where `--address` says. The same checkpoints give the same bytes: nothing is compressed
(weights hardly are), and no time is written.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import sys
import zipfile
from pathlib import Path

from circuitlab.disk.files import made_folder, whole, write_whole
from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import CircuitLabError
from circuitlab.model.archives.address import need_address
from circuitlab.model.archives.index import FOLDER, FORMAT, INDEX, STEP, size_words

_EPOCH = (1980, 1, 1, 0, 0, 0)  # the first day that a zip can name
_PLAIN_FILE = 0o100644 << 16


def checkpoints_in(model: Path) -> list[Path]:
    """The checkpoints in a model's own folder, sorted by name."""
    return sorted(file for file in (model / FOLDER).glob("*") if STEP.fullmatch(file.name))


def archived(model: Path, out: Path) -> JsonDict:
    """Write the archive of a model's checkpoints to the folder `out`; returns its entry of the list. Raises `BadMachine`."""
    path = out / f"{model.name}-checkpoints.zip"
    with whole(path) as fresh, zipfile.ZipFile(fresh, "w", zipfile.ZIP_STORED) as members:
        for file in checkpoints_in(model):
            info = zipfile.ZipInfo(f"{model.name}/{FOLDER}/{file.name}", _EPOCH)
            info.create_system, info.external_attr, info.file_size = 3, _PLAIN_FILE, file.stat().st_size
            with file.open("rb") as source, members.open(info, "w") as target:
                shutil.copyfileobj(source, target, 1 << 20)
    return {"file": path.name, **_about(path), "checkpoints": {file.name: _about(file) for file in checkpoints_in(model)}}


def make(models: Path, out: Path, address: str) -> JsonDict:
    """Write the archives of all models that have checkpoints, then the list; returns it. Raises `BadMachine`, `UsageError`."""
    if address:
        need_address(address)
    made_folder(out)
    folders = [folder for folder in sorted(models.iterdir()) if checkpoints_in(folder)]
    entries = {folder.name: archived(folder, out) for folder in folders}
    index = {"format": FORMAT, "address": address, "archives": entries}
    write_whole(models / INDEX, (json.dumps(index, indent=1) + "\n").encode())
    return index


def _about(path: Path) -> JsonDict:
    with path.open("rb") as file:
        return {"size": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _address(models: Path) -> str:
    """The address that the present list has."""
    path = models / INDEX
    return str(json.loads(path.read_text("utf-8")).get("address", "")) if path.is_file() else ""


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m circuitlab.training.archiving")
    parser.add_argument("models", type=Path, help="the folder of the models")
    parser.add_argument("out", type=Path, help="the folder for the archives")
    parser.add_argument("--address", help="where the archives will be: a folder on the web (default: as before)")
    args = parser.parse_args(argv)
    try:
        index = make(args.models, args.out, _address(args.models) if args.address is None else args.address)
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    for entry in index["archives"].values():
        print(f"{size_words(entry['size']):>10}  {entry['file']}")
    print("address: " + (index["address"] or "none; `circuitlab get` will ask for --from"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
