"""The shipped recipes by their titles, for `--help`: loads neither torch nor numpy."""

from __future__ import annotations

import tomllib

from circuitlab.paths import resource


def shipped_titles() -> dict[str, str]:
    """The title of each shipped recipe by its name, sorted."""
    found = {}
    for path in sorted(resource("recipes").glob("*.toml")):
        with path.open("rb") as file:
            found[path.stem] = str(tomllib.load(file).get("title", ""))
    return found
