"""A family of matched models on one tokenizer, trained one after the other; the same command goes on where it was stopped.

    python -m circuitlab.training.family OUT --text corpus/en_novels:0.44 … stdlib:0.16 [--only attn-only-1l …]

trains OUT/NAME for each entry of `FAMILY` by its recipe. `OUT/tokenizer.json` is trained once, or is that of a run that stands in
OUT already (`--tokenizer` of another one), and every model reads it, bit for bit. What is done is passed over; what was stopped
or killed goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from circuitlab.disk.files import made_folder, need_folder
from circuitlab.errors import BadInput, CircuitLabError, UsageError
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training import command, progress
from circuitlab.training.bpe import train_tokenizer
from circuitlab.training.command import fitting
from circuitlab.training.corpus import find_sources
from circuitlab.training.files import write_whole
from circuitlab.training.output import Output
from circuitlab.training.recipe_file import read_recipe

FAMILY = {  # model: recipe, in the order in which they are wanted
    "attn-only-2l": "attn-only-2l-wide",
    "attn-only-1l": "attn-only-1l-wide",
    "attn-only-0l": "attn-only-0l-wide",
    "attn-only-3l": "attn-only-3l-wide",
    "gpt-mini": "gpt-mini-wide",
    "attn-only-1l-smeared": "attn-only-1l-smeared-wide",
    "attn-only-2l-smeared": "attn-only-2l-smeared-wide",
    "attn-only-2l-plain": "attn-only-2l-plain",
}


def train_family(out: Path, text: list[str], names: tuple[str, ...], tokenizer: Path | None = None, threads: int = 1) -> None:
    """Train or resume the models of these names. Raises `CircuitLabError`, as `circuitlab train` does."""
    need_folder(out)
    if unknown := sorted(set(names) - set(FAMILY)):
        raise UsageError(
            "There is no such model in the family.",
            expected=" ".join(FAMILY),
            got=" ".join(unknown),
            remedy="Name models of the family.",
        )
    shared = shared_tokenizer(out, text, names, tokenizer)
    for name in names:
        say = Output(out / name)
        if is_done(out / name):
            say(f"{name}: done")
            continue
        say(f"{name}: recipe {FAMILY[name]}")
        chosen = {"recipe": FAMILY[name], "text": text, "out": out / name, "tokenizer": shared, "threads": threads}
        command.run(argparse.Namespace(**chosen, device="auto", seed=None, stop_at=None, no_measure=False))


def shared_tokenizer(out: Path, text: list[str], names: tuple[str, ...], given: Path | None) -> Path:
    """`OUT/tokenizer.json`, as it is; else the bytes of `given`, else of the first run that has one, else one that is trained.

    Raises `BadInput` where `given` is another one than the family has.
    """
    path, recipe = out / "tokenizer.json", read_recipe(FAMILY[names[0]])
    runs = [file for name in FAMILY if (file := out / name / "state" / "tokenizer.json").is_file()]
    source = path if path.is_file() else given or next(iter(runs), None)
    if source is None:
        made_folder(out)
        made = train_tokenizer(find_sources(text), recipe.vocab, int(recipe.tokenizer_bytes))
        write_whole(path, made.file_text().encode())
        return path
    fitting(Tokenizer.from_file(source), recipe, source)
    data = source.read_bytes()
    for other in (*runs, *((given,) if given else ())):
        if other.read_bytes() != data:
            raise BadInput(
                "The family would have two tokenizers.",
                expected=f"the bytes of {source}",
                got=f"others in {other}",
                remedy="Train what was begun with another tokenizer in a folder of its own.",
            )
    if source != path:
        write_whole(path, data)
    return path


def is_done(run: Path) -> bool:
    """Whether a run was trained to its last step and measured."""
    try:
        last = json.loads((run / progress.FILE).read_text(encoding="utf-8"))
        return last["state"] == "done" and last["step"] >= last["steps"]
    except (OSError, ValueError, KeyError, TypeError):
        return False


def main(argv: list[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m circuitlab.training.family")
    parser.add_argument("out", type=Path, help="the folder of the runs")
    parser.add_argument("--text", nargs="+", required=True, metavar="FILE", help="files, folders or stdlib; NAME:SHARE")
    parser.add_argument("--only", nargs="+", metavar="NAME", default=list(FAMILY), help=f"of {' '.join(FAMILY)}")
    parser.add_argument("--tokenizer", type=Path, metavar="FILE", help="the tokenizer.json of all (default: trained once)")
    parser.add_argument("--threads", type=int, default=1, help="torch threads (default 1)")
    args = parser.parse_args(argv)
    try:
        train_family(args.out, args.text, tuple(args.only), args.tokenizer, args.threads)
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
