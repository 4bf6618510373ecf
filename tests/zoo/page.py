"""docs/zoo.md: what is known of every analysis on every feature of a model. `python -m tests.zoo` writes it anew."""

from __future__ import annotations

from pathlib import Path

from circuitlab.analysis.base import find_analysis
from tests.zoo import asked, invariances, known, models
from tests.zoo.references import REFERENCES

PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"
REFERENCE, LAW, REFUSED = "●", "○", "–"

HEAD = """# Every analysis on every kind of transformer

Made by `tests/zoo`: {models} small random models that have {features} features among them, each analysis on each of them, with
prompts of {lengths} tokens, in float64. `python -m tests.zoo` writes this page; a test says when it is stale.

● compared with a reference that is worked out anew in numpy, from the tensors of the file · ○ held to laws · – refused, in words

Laws of all: it answers or refuses in words; it is finite, or not computed for a reason that is listed; its parts add up;
interventions that change nothing change nothing, and those at the last position nothing that is said of earlier ones; and a
change of the weights that no logit notices moves no number, except where the answer says that it shows the basis. Those changes
are {changes}.

"""


def cell(name: str, feature: str) -> str:
    """What is known of an analysis on the models that have a feature."""
    with_it = [config for config in models.MODELS.values() if models.FEATURES[feature](config)]
    prompts = ((config, models.prompt(config, models.LENGTHS[-1])) for config in with_it)
    ways = [(config, way) for config, tokens in prompts for way in asked.ways(name, config, tokens, None)]
    if all(find_analysis(name).refuse(config, way.params) for config, way in ways):
        return REFUSED
    return REFERENCE if name in REFERENCES else LAW


def text() -> str:
    """The page."""
    features, names = list(models.FEATURES), asked.names()
    changes = ", ".join(invariances.INVARIANCES)
    sizes = {"models": len(models.MODELS), "features": len(features)}
    lengths = ", ".join(map(str, models.LENGTHS[:-1])) + f" and {models.LENGTHS[-1]}"
    rows = [f"| analysis | {' | '.join(str(i + 1) for i in range(len(features)))} |", "|---" * (len(features) + 1) + "|"]
    rows += [f"| `{name}` | {' | '.join(cell(name, feature) for feature in features)} |" for name in names]
    legend = [f"{i + 1}. {feature}: {_having(feature)}" for i, feature in enumerate(features)]
    broken = [f"- {name}, {law}: {why}" for (law, name), why in known.BROKEN.items()] or ["- nothing"]
    basis = [f"- `{name}` under {change}: {', '.join(fields)}: {why}" for (name, change), (fields, why) in known.OF_BASIS.items()]
    parts = [HEAD.format(**sizes, lengths=lengths, changes=changes) + "\n".join(rows)]
    parts += ["## Features, and the models that have them\n\n" + "\n".join(legend)]
    parts += ["## What shows the basis, and says so\n\n" + "\n".join(basis)]
    parts += ["## What does not hold yet\n\n" + "\n".join(broken)]
    return "\n\n".join(parts) + "\n"


def _having(feature: str) -> str:
    return ", ".join(name for name, config in models.MODELS.items() if models.FEATURES[feature](config))
