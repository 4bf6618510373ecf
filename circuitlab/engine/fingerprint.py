"""The name of a question that is the same in every process, on every machine and under every path: a hash of all that its answer
depends on. What files hold counts, never where they lie.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from circuitlab.engine.request import Request, needs, with_files
from circuitlab.engine.texts import Texts
from circuitlab.model.plain import to_json


@dataclass(frozen=True)
class ModelIdentity:
    """What of a model its answers depend on: the sha256 of its weights and of its configuration, and the hash of its vocabulary
    ("" without a tokenizer)."""

    weights: str
    config: str
    vocabulary: str = ""


def fingerprint(request: Request, model: ModelIdentity, place: str, texts: Texts) -> str:
    """sha256 of analysis, version, parameters, conventions, device and model, with tokens and interventions where it reads them.

    `texts`: hashes the files among the parameters, each once. Raises `BadInput` for one that cannot be read.
    """
    subject, reads = request.subject, needs(request.analysis, request.params)
    settled = texts.settled(request.params)
    about = {
        "analysis": request.analysis.name,
        "version": request.analysis.version,
        "params": to_json(with_files(settled, lambda ref: replace(ref, **{_place(ref): ""}))),
        "conventions": to_json(subject.conventions),
        "device": place,
        "model": to_json(model),
        "tokens": list(subject.tokens) if reads == "tokens" else None,
        "edits": to_json(subject.edits) if reads != "weights" else None,
    }
    return hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()


def _place(ref: object) -> str:
    return "path" if hasattr(ref, "path") else "source"
