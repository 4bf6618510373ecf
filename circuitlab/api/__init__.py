"""CircuitLab from Python: open a model, compute an analysis, draw a figure; the same engine as the window.

For one:

    import circuitlab.api as lab
    model = lab.open("attn-only-2l")
    answer = model.compute("attention", text="one two one two", set={"heads": "L1H3"})
    answer.result.values                                     # [head, dest, src]
    model.figure("attention", text="one two one two", heads="L1H3", out="attention.svg")
    model.run("one two one two")["layers.1.z"]               # [head, position, d_head]
    model.edit("zero z L1H3").generate("one two", n=5).text  # without that head

`help(lab.open)` has conventions and machine, `help(lab.Model.edit)` the words of interventions.
`text` is always the prompt. Parameters of an analysis go into `set`, under the names that `circuitlab analyses` lists; a name
that is not already an argument here may also be passed directly: `heads="L1H3"`.
"""

from circuitlab.analysis.base import analyses
from circuitlab.api.answers import difference, save, table
from circuitlab.api.engines import engine
from circuitlab.api.long_work import progress
from circuitlab.api.model import Model
from circuitlab.api.opening import Transformer, open, session
from circuitlab.api.snippets import snippet, snippet_of
from circuitlab.api.sweeping import Sweep, sweep
from circuitlab.draw.look.paper import Paper
from circuitlab.draw.look.slide import Slide
from circuitlab.engine.request import Answer
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.subject import Conventions, Head, Target

__all__ = [
    "Answer",
    "Conventions",
    "Head",
    "Intervention",
    "Model",
    "Paper",
    "Site",
    "Slide",
    "Sweep",
    "Target",
    "Transformer",
    "analyses",
    "difference",
    "engine",
    "open",
    "progress",
    "save",
    "session",
    "snippet",
    "snippet_of",
    "sweep",
    "table",
]
