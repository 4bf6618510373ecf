"""The arguments of Olsson et al. 2022: how strong the paper calls each, and which picture of this program is behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from circuitlab.figures.panels.prompt_sets.panel import PromptSetsView
from circuitlab.figures.panels.spectra.panel import SpectraView
from circuitlab.figures.panels.theory.panel import TheoryView
from circuitlab.figures.panels.training.panel import TrainingView
from circuitlab.model.config import ModelConfig
from circuitlab.state.state import State

Claim = Literal["some", "the majority"]
CLASSES = ("small, attention only", "small, with MLPs", "large")
COLUMNS = ("small attn", "small MLP", "large")  # the same, in a narrow column
SMALL = 6  # layers of the paper's largest small models
FAMILY = ("attn-only-1l", "attn-only-1l-smeared", "attn-only-2l")  # one layer, smeared keys, two layers
NOT_GIVEN = ("not given",) * 3


@dataclass(frozen=True)
class Argument:
    """`kind` of argument; `some`, `majority`: its strength for either claim by class of models, "" where the paper has none.

    `panel` has the picture behind it; `shown(state)` is the State in which it is open at that picture.
    """

    name: str
    kind: str
    some: tuple[str, ...]
    majority: tuple[str, ...]
    panel: str
    shown: Callable[[State], State]

    def strengths(self, claim: Claim) -> tuple[str, ...]:
        """By class of models."""
        return self.some if claim == "some" else self.majority


def class_of(config: ModelConfig) -> int:
    """The class of a model, an index into `CLASSES`."""
    return 0 if config.attention_only and config.n_layers <= SMALL else 1 if config.n_layers <= SMALL else 2


def _training(**changes: object) -> Callable[[State], State]:
    return lambda state: state.with_view("training", replace(state.view("training", TrainingView), **changes))


def _theory(state: State) -> State:
    view = replace(
        state.view("theory", TheoryView), page="heads", predicted="positivity through earlier heads", measured="ablation"
    )
    return state.with_view("theory", view)


def _plane(state: State) -> State:
    return state.with_view("spectra", replace(state.view("spectra", SpectraView), page="plane"))


def _prompt_sets(state: State) -> State:
    view = replace(state.view("prompt_sets", PromptSetsView), what="answer_attention", prompts="translation", page="heads")
    return state.with_view("prompt_sets", view)


ARGUMENTS = (
    Argument(
        "1 co-occurrence",
        "correlational",
        ("medium", "medium", "medium"),
        ("medium", "medium", "medium"),
        "training",
        _training(page="curves", context="all", score="prefix matching", models=""),
    ),
    Argument(
        "2 co-perturbation",
        "interventional",
        ("medium", "medium", "weak"),
        ("medium", "medium", "weak"),
        "training",
        _training(page="curves", context="text", score="prefix matching", models=", ".join(FAMILY)),
    ),
    Argument("3 direct ablation", "causal", ("strong", "strong", ""), ("strong", "medium", ""), "theory", _theory),
    Argument("4 generality", "by example", ("", "", "plausibility"), ("", "", "plausibility"), "prompt_sets", _prompt_sets),
    Argument("5 mechanism", "mechanistic", NOT_GIVEN, NOT_GIVEN, "spectra", _plane),
    Argument(
        "6 continuity", "by analogy", ("", "", "analogy"), ("", "", "analogy"), "training", _training(page="plane", models="")
    ),
)
STRONGEST = Argument("strongest", "", ("strong", "strong", "medium"), ("strong", "medium", "medium"), "", lambda state: state)
KIND_OF_STRONGEST = {
    "some": "strongest of all: causal for small models, correlational and mechanistic for large ones",
    "the majority": "strongest of all: causal for small models, correlational for large ones",
}
