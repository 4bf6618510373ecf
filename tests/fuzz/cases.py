"""One case: a valid model, one or two things done to it, and how it is to be opened. The same seed gives the same case."""

from __future__ import annotations

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.byte_mutators import BYTES, Mutator
from tests.fuzz.corpus import CORPUS
from tests.fuzz.gguf_mutators import GGUF
from tests.fuzz.json_mutators import JSON, SAFETENSORS, index_paths
from tests.fuzz.pickle_mutators import PICKLES
from tests.fuzz.place_mutators import PLACES


@dataclass(frozen=True)
class Case:
    """`path` is what is opened; `mapped`: read where it lies; `cut`: its files are cut short between opening and use."""

    model: str
    path: Path
    said: str
    mapped: bool
    cut: bool


def build_corpus(folder: Path) -> dict[str, Path]:
    """Every valid model in a folder of its own, and what of it is opened."""
    return {name: make(folder / name) for name, make in CORPUS.items()}


def _mutators(file: Path, rng: random.Random) -> tuple[Mutator, ...]:
    """What can be done to a file, by its kind; half of it what is made for that kind."""
    special: tuple[Mutator, ...] = ()
    if file.suffix == ".json":
        special = (*JSON, *((index_paths,) * 5 if ".index." in file.name else ()))
    elif file.suffix == ".safetensors":
        special = SAFETENSORS
    elif file.suffix == ".gguf":
        special = GGUF
    elif file.suffix in (".bin", ".pt", ".pth") and file.name != "model.bin":
        special = PICKLES
    return rng.choice([special or BYTES, special or BYTES, special or BYTES, BYTES, BYTES, PLACES])


def make_case(corpus: dict[str, Path], folder: Path, seed: str) -> Case:
    """The case of a seed, laid out under `folder`, which must be empty."""
    rng = random.Random(seed)
    model = rng.choice(sorted(corpus))
    source = corpus[model]
    root = source if source.is_dir() else source.parent
    there = folder / rng.choice(["m", "m", "m", "ein Ordner", "\udcff\udcfe", "m.bin"])
    shutil.copytree(root, there)
    path = there if source.is_dir() else there / source.name
    cut = rng.random() < 0.04
    said = ["cut while in use"] if cut else []
    for _ in range(0 if cut else rng.choice([1, 1, 1, 1, 2])):
        files = sorted(f for f in there.rglob("*") if f.is_file() and not f.is_symlink())
        if not files:
            break
        file = rng.choice(files)
        mutator = rng.choice(_mutators(file, rng))
        try:
            said.append(mutator(file, rng))
        except Exception as error:  # the second change may meet what the first has made unreadable
            if not said:
                raise
            said.append(f"{mutator.__name__} could not follow ({type(error).__name__})")
    return Case(model, path, "; ".join(said), rng.random() < 0.5, cut)
