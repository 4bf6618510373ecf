"""Plug-ins for tests: distributions as installers leave them, and files."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "docs" / "example-plugin"
RUNS = '''
"""How long the runs of equal tokens are."""

from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.base import Column, Ctx, Inputs, Result, Table, analysis, over

__version__ = "0.3"


@dataclass(frozen=True)
class RunsParams:
    pass


@dataclass(frozen=True, kw_only=True, eq=False)
class RunsResult(Result):
    length: np.ndarray = over("position", unit="tokens", none=True)

    def table(self):
        return Table((Column("position", np.arange(len(self.length)), of="position"), Column("length", self.length, "tokens")))


@analysis(version=1, needs="tokens", lane="live", memory=lambda config, n, p: 8 * n)
def runs(inputs: Inputs, p: RunsParams, ctx: Ctx) -> RunsResult:
    """The length of the run of equal tokens that ends at each position."""
    lengths = []
    for i, token in enumerate(inputs.subject.tokens):
        lengths.append(lengths[-1] + 1 if i and token == inputs.subject.tokens[i - 1] else 1)
    return RunsResult(length=np.array(lengths))
'''


def distribution(site: Path, name: str, version: str, points: dict[str, dict[str, str]], **modules: str) -> Path:
    """A distribution in a folder of modules. `points`: by group the values of its entry points by name; `modules`: sources."""
    site.mkdir(exist_ok=True, parents=True)
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    groups = (f"[circuitlab.{group}]\n" + "".join(f"{n} = {v}\n" for n, v in e.items()) for group, e in points.items())
    (info / "entry_points.txt").write_text("\n".join(groups))
    for module, source in modules.items():
        (site / f"{module}.py").write_text(source)
    return site


PANEL = '''
"""A panel of the model's losses."""

import time
from dataclasses import dataclass

import numpy as np

from circuitlab.analysis.base import find_analysis
from circuitlab.engine.request import Request
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.panel import Panel, Why, control, register
from circuitlab.figures.marks import Figure, RowColumn, Rows, ids

__version__ = "0.4"
losses = find_analysis("token_loss")


@dataclass(frozen=True)
class View:
    digits: int = control(2, label="Digits")


def requests(state, facts):
    return {"loss": Request(losses, losses.params(), state.subject)} if state.tokens else Why("Type some text in the Prompt.")


def draw(state, facts, answers):
    answer = answers.of("loss", losses)
    column = RowColumn("loss", answer.result.loss, digits=state.view("own_losses", View).digits)
    return Figure(((Rows("losses", (column,), ids(np.arange(len(answer.result.loss)))),),), "Own losses", caption(answer))


register(
    Panel("own_losses", "Own losses", View, "L = -ln p", "nobody", "Losses.", requests, lambda state, hit: state, draw)
)
'''

FAMILY = '''
"""Models that say that they are odd and are CircuitLab's own otherwise."""

from dataclasses import replace

from circuitlab.model.loading.circuitlab_dir import FAMILY as OWN
from circuitlab.model.loading.family import Family

__version__ = "0.5"


def load(checkpoint, keep):
    config = {name: value for name, value in checkpoint.config.items() if name != "model_type"}
    return OWN.load(replace(checkpoint, config=config | {"format": "circuitlab"}), keep)


FAMILY = Family(name="odd", title="Odd", claims=lambda checkpoint: checkpoint.model_type == "odd_one", load=load)
'''
