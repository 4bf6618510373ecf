"""The left column of `docs/from-transformer-lens.md`, run by TransformerLens 3.9: `from_transformer_lens.npz`, by expression.

    python tests/reference/make_from_transformer_lens.py     in an environment with transformer_lens 3.9

Model and prompts are those of `make_transformer_lens`: a small random GPT-2 in float64, norms folded, writing weights centred.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[2]
FILE = Path(__file__).with_name("from_transformer_lens.npz")
PAGE = ROOT / "docs" / "from-transformer-lens.md"
DIRECTION = tuple(round(float(x), 3) for x in np.random.default_rng(5).normal(size=32))


def rows() -> list[tuple[str, str]]:
    """(in TransformerLens, here): the expressions of the page's table."""
    return re.findall(r"^\| <code>(.*?)</code> \| <code>(.*?)</code> \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def main() -> None:
    """Write the file."""
    import torch
    from transformer_lens import patching  # pyright: ignore[reportMissingImports]

    sys.path.insert(0, str(ROOT))
    from tests.reference.make_transformer_lens import OTHER, TOKENS, library_model

    torch.set_grad_enabled(False)
    model = library_model("gpt2", True)
    tokens, other = torch.tensor([TOKENS]), torch.tensor([OTHER])
    scope: dict[str, Any] = {
        "raw": library_model("gpt2", False),
        "model": model,
        "tokens": tokens,
        "other": other,
        "torch": torch,
        "patching": patching,
    }
    scope |= {"cache": model.run_with_cache(tokens)[1], "there": model.run_with_cache(other)[1]}
    scope["direction"] = torch.tensor(DIRECTION, dtype=torch.float64)
    result = {left: eval(left, scope).numpy().astype(np.float32) for left, _ in rows()}
    np.savez_compressed(FILE, names=np.array(list(result)), **{f"row{i}": array for i, array in enumerate(result.values())})
    print(f"{FILE.name}: {len(result)} arrays, {FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
