"""What somebody else's checked program does with CircuitLab; it is read by a type checker in strict mode and never run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, assert_type

import numpy as np
import pandas as pd  # pyright: ignore[reportMissingTypeStubs]

import circuitlab.api as lab
from circuitlab.analysis.attention.pattern import AttentionParams, AttentionResult, attention
from circuitlab.engine.export_difference import Difference
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.marks import Figure
from circuitlab.model.config import ModelConfig
from circuitlab.report.picture import Picture
from circuitlab.report.saved_session import SavedSession, SavedStep
from circuitlab.state.state import State

model = lab.open("attn-only-2l", step=None)
assert_type(model, lab.Model)
assert_type(model.config, ModelConfig)
assert_type(model.config.n_layers, int)
assert_type(model.steps, tuple[int, ...])
assert_type(model.at_step(4000), lab.Model)
assert_type(model.tokens("a b"), tuple[int, ...])

answer = model.compute("attention", text="a b a b", heads="L1H3", cut="L0H1")
assert_type(answer, Answer[Any])
assert_type(answer.fingerprint, str)
assert_type(answer.complete, bool)
assert_type(answer.to_pandas("values", wide=True), pd.DataFrame)
assert_type(lab.table(answer), str)
before = model.compute("attention", tokens=(0, 1, 2), conventions=lab.Conventions(centre=False))
assert_type(lab.difference(answer, before), Difference)
assert_type(lab.difference(answer, before).to_pandas(), pd.DataFrame)
lab.save(answer, Path("a.npz"))

# by the analysis itself, the result has its own type
typed = model.engine.answer(Request(attention, AttentionParams((lab.Head(1, 3),)), model.subject(text="a b a b")))
assert_type(typed, Answer[AttentionResult])
values: np.ndarray = typed.result.values
assert_type(typed.result.unit, str)

edits = (lab.Intervention("zero", lab.Site("z", 1, (3,))),)
picture = model.figure("attention", text="a b a b", heads=(lab.Head(1, 3),), edits=edits, paper=lab.Paper(width_mm=84))
assert_type(picture, Picture)
assert_type(picture.figure, Figure)
assert_type(picture.save("a.pdf", width_mm=174), Path)
assert_type(picture.svg(), str)
assert_type(picture.png(), bytes)
assert_type(model.state(text="a b", heads="L1H3", target=lab.Target((1,))), State)

talk = lab.session("talk.circuitlab")
assert_type(talk, SavedSession)
assert_type(talk.steps, tuple[SavedStep, ...])
assert_type(talk.now.figure("attention"), Picture)
assert_type(talk.steps[0].compute("token_loss"), Answer[Any])
assert_type(talk.title, str)
lab.progress(False)
