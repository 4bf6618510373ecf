"""Small files that would take the machine, and links beside sessions: each in a process of its own, within limits."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.fuzz.links import beside_a_session
from tests.fuzz.multiplied import multiplied
from tests.fuzz.runner import Row
from tests.fuzz.sharing import written
from tests.fuzz.tokenizer_bombs import tokenizers
from tests.limited import Outcome, tried

# kind: what is done with its files, and what makes them
KINDS: Mapping[str, tuple[str, Callable[[Path], dict[str, Path]]]] = {
    "sharing in pickles": ("tests.limited:read_a_pickle", written),
    "sizes multiplied": ("tests.limited:open_a_model", multiplied),
    "tokenizers": ("tests.limited:open_a_tokenizer", tokenizers),
}


def sessions(folder: Path, count: int, seed: int) -> dict[str, Path]:
    """Sessions among links and devices; what stands beside each is its name here."""
    made = {}
    for i in range(count):
        (place := folder / str(i)).mkdir(parents=True)
        path, said = beside_a_session(place, random.Random(f"{seed}:{i}"))
        made[f"{seed}:{i} {', '.join(said)}"] = path
    return made


def run(count: int, seed: int) -> tuple[dict[str, Row], list[str]]:
    """(what came of each kind, failures); `count`: sessions."""
    kinds, failures = dict[str, Row](), list[str]()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        of = {name: (what, make(Path(place) / name)) for name, (what, make) in KINDS.items()}
        of["links beside sessions"] = ("tests.fuzz.links:use_and_look", sessions(Path(place) / "sessions", count, seed))
        for kind, (what, files) in of.items():
            outcomes = tried(what, files.values())
            kinds[kind] = Row()
            for name, path in files.items():
                one: Outcome = outcomes[path]
                kinds[kind].add(one.kind == "opened", one.refused, one.peak, one.steps)
                if one.kind == "FAILED":
                    failures.append(f"{kind}: {name}: {one.text}")
    return kinds, failures
