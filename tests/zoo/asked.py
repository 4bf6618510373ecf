"""How each analysis is asked: small samples, the last head, and another prompt where one is needed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from circuitlab.analysis.base import TextRef, analyses, find_analysis
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from tests.zoo import models
from tests.zoo.forward import Model, Passed, Tensors

Tokens = tuple[int, ...]
SAMPLES: dict[str, Any] = {"samples": 2, "block": 3, "repeats": 2, "texts": 2, "frozen": True, "k": 4}
PROMPTS = "ab\tc\td\nbcd\te\tf\n"
COMPUTED_IN = Conventions(dtype="float64")

# Further ways of asking, beside the one that follows from the fields.
FURTHER: dict[str, tuple[dict[str, Any], ...]] = {
    "head_scores": ({"on": "text"},),
    "ablation": ({"frozen": False, "how": "mean"}, {"frozen": False, "effect": "target"}),
    "attention": ({"show": "scores"}, {"show": "contribution"}),
    "direct_attribution": ({"positions": "all"},),
    "logit_lens": ({"mid": True, "statistics": "the final layer's"},),
    "patching": ({"estimate": True},),
    "qk_table": ({"given": "source", "distance": 1}, {"embed": "tokens"}),
    "ov_table": ({"given": "out"}, {"embed": "tokens"}),
    "virtual_weight": (
        {"writer": "head", "reader": "QK query"},
        {"writer": "head", "reader": "QK key", "across": True},
        {"writer": "embedding", "reader": "OV"},
        {"writer": "position", "reader": "QK query"},
        {"writer": "mlp", "reader": "unembedding", "across": True},
        {"writer": "embedding", "reader": "mlp", "across": True, "mlp": "mean Jacobian"},
    ),
    "token_attribution": ({"direction": "destinations"},),
    "singular_vectors": ({"matrix": "QK", "distance": 1},),
    "qk_spectrum": ({"matrix": "bare"},),
    "ov_spectrum": ({"matrix": "bare"},),
    "largest_entries": ({"circuit": "QK"},),
    "subspace_overlap": ({"left": "reads_k", "right": "reads_v"},),
}


@dataclass(frozen=True)
class Asked:
    """One way of asking an analysis; `way` names it beside others of the same one."""

    name: str
    params: Any
    way: str = ""

    def __str__(self) -> str:
        return f"{self.name}({self.way})" if self.way else self.name


def _other(config: ModelConfig, tokens: Tokens) -> Tokens:
    """The prompt with another token in the middle."""
    at = (len(tokens) - 1) // 2
    return tuple((t + 1) % config.d_vocab if i == at else t for i, t in enumerate(tokens))


def _params(name: str, config: ModelConfig, tokens: Tokens, folder: Path | None) -> Any:
    analysis = find_analysis(name)
    params, last = analysis.params(), Head(max(0, config.n_layers - 1), config.n_heads - 1)
    hints, changes = get_type_hints(analysis.params), dict[str, Any]()
    for field in fields(analysis.params):
        if hints[field.name] == Head and field.name not in ("earlier", "writer_head", "first", "sender"):
            changes[field.name] = last
        elif (
            field.name in SAMPLES and type(getattr(params, field.name)) is type(SAMPLES[field.name]) and name != "term_importance"
        ):
            changes[field.name] = SAMPLES[field.name]
        elif field.name == "reader_layer":
            changes[field.name] = max(0, config.n_layers - 1)
        elif field.name == "source" and name in ("patching", "path_patching", "ablation", "keep_only"):
            changes[field.name] = _other(config, tokens) if name.endswith("patching") else ()
        elif field.name == "token":
            changes[field.name] = min(2, config.d_vocab - 1, config.d_vocab_out - 1)
    if name == "over_prompts":
        file = "" if folder is None else str(folder / "prompts.tsv")
        changes |= {"file": TextRef(file), "analysis": "direct_attribution"}
    return replace(params, **changes)


def ways(name: str, config: ModelConfig, tokens: Tokens, folder: Path | None) -> Iterator[Asked]:
    """Each way of asking an analysis of one model and prompt; `folder` has the prompt set, None: none is read."""
    plain = _params(name, config, tokens, folder)
    yield Asked(name, plain)
    for changes in FURTHER.get(name, ()):
        if name == "ablation" and not config.n_layers:
            continue
        yield Asked(name, replace(plain, **changes), ", ".join(map(str, changes.values())))


def names() -> tuple[str, ...]:
    """Of every registered analysis of CircuitLab's own, intermediates included."""
    return tuple(name for name, one in analyses().items() if one.plugin is None)


class Bench:
    """One model of the zoo: its configuration and tensors, the zoo's own forward pass, and an engine that has it open.

    `mapped`: read from the file as float64, where a small model is otherwise copied as float32.
    """

    def __init__(self, folder: Path, config: ModelConfig, tensors: Tensors | None = None, mapped: bool = False) -> None:
        self.folder, self.config = folder, config
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "prompts.tsv").write_text(PROMPTS, "utf-8")
        self.tensors = models.tensors_of(config) if tensors is None else tensors
        self.own = Model(config, self.tensors)
        self.ref = ModelRef(f"file:{models.written(folder / 'model', config, self.tensors)}")
        self.engine = Engine(ModelStore())
        self.engine.store.largest_copy = 0 if mapped else self.engine.store.largest_copy
        self._passes: dict[Tokens, Passed] = {}

    def answer(
        self, asked: Asked, tokens: Tokens, edits: tuple[Intervention, ...] = (), conventions: Conventions = COMPUTED_IN
    ) -> Answer[Any]:
        """What the engine answers; raises what it raises."""
        return self.engine.answer(Request.named(asked.name, asked.params, Subject(self.ref, tokens, edits, conventions)))

    def pass_of(self, tokens: Tokens) -> Passed:
        """The zoo's own pass over a prompt."""
        if tokens not in self._passes:
            self._passes[tokens] = self.own(tokens)
        return self._passes[tokens]

    def ways(self, name: str, tokens: Tokens) -> Iterator[Asked]:
        """Each way of asking an analysis."""
        return ways(name, self.config, tokens, self.folder)
