"""`circuitlab generate MODEL --text …`: what a model continues a prompt with."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from circuitlab.api.model import Edits, Model


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Those beside the prompt."""
    parser.add_argument("-n", type=int, default=20, metavar="N", help="tokens, fewer where the context is full (default 20)")
    temperature = "0: the most probable token each time (default); else tokens are drawn from softmax(logits / T)"
    parser.add_argument("--temperature", type=float, default=0.0, metavar="T", help=temperature)
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the draws (default 0)")
    parser.add_argument("--json", action="store_true", help="print JSON: the ids of the prompt, the new ones, and their text")


def run(
    args: argparse.Namespace, model: Model, text: str | None = None, tokens: Iterable[int] | None = None, edits: Edits = ()
) -> int:
    """Print the new text, or the new ids where they have none, as those of a model without a tokenizer."""
    result = model.generate(text, args.n, args.temperature, args.seed, tokens, edits=edits)
    if args.json:
        print(json.dumps({"prompt": result.prompt, "new": result.new, "text": result.text}, ensure_ascii=False, indent=1))
    else:
        print(result.text or " ".join(map(str, result.new)))
    return 0
