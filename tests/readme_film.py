"""Writes the film in the README: python -m tests.readme_film"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from circuitlab import api
from circuitlab.disk.paths import resource

TEXT = "Mr and Mrs Hursley of the mill, said that Mr and Mrs Hursley"
STEP = {
    "model": "attn-only-2l",
    "text": TEXT,
    "heads": "best final prefix_matching",
    "show": ["training", "attention"],
    "play": [0, "final"],
}


def main() -> None:
    """Write it."""
    session = {
        "circuitlab": "session",
        "version": 1,
        "models": {"attn-only-2l": {"source": "builtin:attn-only-2l"}},
        "now": {"model": "attn-only-2l"},
        "story": {"title": "A film", "steps": [{"title": "An induction head forms", "text": "", "set": STEP}]},
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.circuitlab"
        path.write_text(json.dumps(session), encoding="utf-8")
        api.session(path).steps[0].film(resource("film.webp"), api.Slide(fps=3.0))


if __name__ == "__main__":
    main()
