"""Opening models, by name, by path or from tensors, and sessions."""

from __future__ import annotations

import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import torch

from circuitlab.api.engines import engine
from circuitlab.api.long_work import working
from circuitlab.api.model import Model
from circuitlab.engine.engine import GIB, Engine, use_threads
from circuitlab.engine.store import reference
from circuitlab.errors import UsageError, quoted
from circuitlab.interrupts import at_end
from circuitlab.machine_limits import MOST_GIB, MOST_THREADS
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.importing.by_map import ImportMap, canonical, refuse_problems, survey
from circuitlab.model.importing.streamed import stream_directory
from circuitlab.model.loading.family import tokenizer_at
from circuitlab.model.subject import Conventions
from circuitlab.model.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from circuitlab.report.saved_session import SavedSession


def open(
    model: str,
    step: int | None = None,
    use: Engine | None = None,
    assume: Mapping[str, str] | None = None,
    *,
    dtype: Literal["float32", "float64"] = "float32",
    raw: bool = False,
    bos: bool | str | None = None,
    special: bool = True,
    device: str | None = None,
    threads: int | None = None,
    budget: float | None = None,
) -> Model:
    """Open a shipped model by name, a model's folder or file by path, or a constructed one by its parameters.

        lab.open("attn-only-2l")
        lab.open("runs/mine/model", step=4000, dtype="float64", raw=True, bos=False)
        lab.open("construct:rope-induction?alpha=5&offset=2")

    `step`: the training step whose weights to open; None: the final weights (`Model.at_step`).
    `assume`: values that the files do not state, under the names that `Model.assumptions` lists.
    `use`: the engine that computes; by default the one of this process, which all models share.

    Conventions of every question about the model, unless the question says otherwise:

    `dtype`: what is computed in.
    `raw`: weights as they are stored: norms not folded into the weights behind them, nothing centred. No log-probability changes.
    `bos`: whether BOS is put in front of a text, or another special token by its spelling ("<|endoftext|>"); None: as the model
    was trained.
    `special`: whether spellings of special tokens in a text become their ids, as in `transformers`; otherwise they are letters.

    The machine; each is set on the engine, for all that it computes from now on, and left as it is where it is None:

    `device`: "cpu" (as an engine begins), "cuda", "cuda:1", "mps".
    `threads`: of torch, for the whole process. With 1 (as the command line begins) answers are bit-equal.
    `budget`: memory in GiB beyond which an analysis is refused before it runs; 4 as an engine begins. Weights are not counted.

    Raises `BadModel`, `BadMachine` for a device that is not there, `UsageError` for an argument that cannot be.
    """
    if dtype not in ("float32", "float64"):
        raise _unusable("dtype", "float32 or float64", dtype)
    if threads is not None and (not isinstance(threads, int) or isinstance(threads, bool) or not 1 <= threads <= MOST_THREADS):
        raise _unusable("threads", f"a whole number from 1 to {MOST_THREADS}", threads)
    if budget is not None and not (isinstance(budget, (int, float)) and 0 < budget <= MOST_GIB):
        raise _unusable("budget", "GiB, more than 0", budget)
    host = use or engine()
    ref = dataclasses.replace(reference(model), assume=tuple(sorted((assume or {}).items())))
    host.store.open_now(ref)
    opened = Model(ref, host, conventions=Conventions(not raw, not raw, dtype), bos=bos, special=special).at_step(step)
    if device is not None:
        host.use_device(device)
    if threads is not None:
        use_threads(threads)
    if budget is not None:
        host.budget(int(budget * GIB))
    return opened


def _unusable(name: str, expected: str, got: object) -> UsageError:
    return UsageError(
        f"The argument {name} cannot be used.", expected=expected, got=quoted(got), remedy="Change it, or leave it out."
    )


def session(path: str | Path, use: Engine | None = None) -> SavedSession:
    """A session that the window has saved: where it stands, and the steps of its story. Of a picture: what it shows, as `.now`.

        talk = lab.session("talk.circuitlab")
        talk.now.figure("attention", out="attention.svg")      # what the window shows
        for step in talk.steps:
            print(step.title, step.state.selection.head)
        talk.steps[1].figure("composition")
        talk.steps[1].compute("token_loss").result.loss        # [position]
        talk.report("talk.html")                               # all of it as one page

    Its models are found by the hash of their weights. Of one that is not on this machine the results inside the file are taken;
    a figure that is not among them raises `BadModel`. Raises `BadInput` for a file that is neither.
    """
    from circuitlab.report.saved_session import opened_session
    from circuitlab.story.arrangements import FRONTS

    return opened_session(path, use or engine(), FRONTS, working)


def Transformer(
    config: ModelConfig | Mapping[str, object],
    tensors: Mapping[str, object],
    tokenizer: Tokenizer | str | Path | None = None,
    folder: str | Path | None = None,
    use: Engine | None = None,
) -> Model:
    """A model straight from tensors (torch's or numpy's), by canonical names: `embed.W_E`, `layers.0.W_Q`, `unembed.W_U` ….

    `config` may be a mapping of `ModelConfig`'s fields. Gains and biases of norms default to 1 and 0. The model is written as
    a CircuitLab directory to `folder`, by default to a temporary folder that is removed when Python exits. Raises `BadModel`,
    naming every tensor that is missing, unexpected or of the wrong shape.
    """
    model_config = config if isinstance(config, ModelConfig) else ModelConfig.from_json(config)
    as_given = {name: torch.as_tensor(value) for name, value in tensors.items()}
    float_tensors = {name: x.detach().cpu() if x.is_floating_point() else x.float().cpu() for name, x in as_given.items()}
    import_survey, parts = survey(ImportMap(model_config, canonical(model_config, float_tensors)), ResidentTensors(float_tensors))
    homeless = (f"{name} has no place in this model" for name in import_survey.unused)
    refuse_problems(replace(import_survey, problems=(*import_survey.problems, *homeless)))
    if isinstance(tokenizer, str | Path):
        tokenizer = tokenizer_at(str(tokenizer))
    where = Path(folder) if folder is not None else Path(_temporary()) / f"{len(list(Path(_temporary()).iterdir()))}-model"
    stream_directory(where, parts, tokenizer)
    return open(str(where), use=use)


@functools.cache
def _temporary() -> str:
    """A folder for models built from tensors, removed when Python exits."""
    folder = tempfile.mkdtemp(prefix="circuitlab-")
    at_end(lambda: shutil.rmtree(folder, ignore_errors=True))
    return folder
