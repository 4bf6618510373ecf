"""CircuitLab from Python: open a model, compute an analysis, draw a figure; the same engine as the window.

For one:

    import circuitlab.api as lab
    model = lab.open("attn-only-2l")
    answer = model.compute("attention", text="one two one two", set={"heads": "L1H3"})
    answer.result.values                                     # [head, dest, src]
    model.figure("attention", text="one two one two", heads="L1H3", out="attention.svg")

`text` is always the prompt. Parameters of an analysis go into `set`, under the names that `circuitlab analyses` lists; a name
that is not already an argument here may also be passed directly: `heads="L1H3"`.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import shutil
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import torch

from circuitlab.analysis.attention.pattern import chosen_heads
from circuitlab.analysis.base import TextRef, analyses, find_analysis
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.engine.codec import as_text, params_of, parse
from circuitlab.engine.engine import GIB, Engine
from circuitlab.engine.export_data import export_of, table_text, write_answers
from circuitlab.engine.export_difference import Difference, differences
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore, reference, step_of
from circuitlab.errors import BadInput, UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.tensors import ResidentTensors
from circuitlab.model.importing.by_map import ImportMap, canonical, refuse_problems, survey
from circuitlab.model.importing.streamed import stream_directory
from circuitlab.model.intervention import Intervention
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.loading.family import tokenizer_at
from circuitlab.model.records.series import index_of
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.whole_numbers import whole_numbers
from circuitlab.session.state import State

if TYPE_CHECKING:
    from circuitlab.figures.marks import Figure
    from circuitlab.report.saved_session import SavedSession

_ENGINE: Engine | None = None
_USED: WeakValueDictionary[ModelRef, Engine] = WeakValueDictionary()  # the engine that opened a model last


def engine() -> Engine:
    """The engine of this process, created on first use."""
    global _ENGINE
    if _ENGINE is None:
        _ENGINE = Engine(ModelStore(), 4 * GIB)
    return _ENGINE


def open(model: str, step: int | None = None, use: Engine | None = None, assume: Mapping[str, str] | None = None) -> Model:
    """Open a shipped model by name, or a model's folder or file by path. Raises `BadModel`.

    `step`: the training step whose weights to open; None: the final weights (`Model.at_step`). `assume`: values that the files do
    not state, under the names that `Model.assumptions` lists.
    """
    host = use or engine()
    ref = dataclasses.replace(reference(model), assume=tuple(sorted((assume or {}).items())))
    host.store.open(ref)
    return Model(ref, host).at_step(step)


def session(path: str | Path, use: Engine | None = None) -> SavedSession:
    """A session that the window has saved: where it stands, and the steps of its story. Raises `BadInput`.

        talk = lab.session("talk.circuitlab")
        talk.now.figure("attention", out="attention.svg")      # what the window shows
        for step in talk.steps:
            print(step.title, step.state.selection.head)
        talk.steps[1].figure("composition")
        talk.steps[1].compute("token_loss").result.loss        # [position]

    Its models are found by the hash of their weights; a figure of one that is not on this machine raises `BadModel`.
    """
    from circuitlab.report.saved_session import opened_session

    return opened_session(path, use or engine())


def Transformer(
    config: ModelConfig | Mapping[str, Any],
    tensors: Mapping[str, Any],
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
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


class Model:
    """An open model. Text is encoded with its tokenizer, with BOS prepended if the model was trained with it."""

    def __init__(self, ref: ModelRef, use: Engine) -> None:
        self.ref, self.engine = ref, use
        _USED[ref] = use

    @property
    def config(self) -> ModelConfig:
        """The model's configuration."""
        return self.engine.store.open(self.ref).opened.weights.config

    @property
    def steps(self) -> tuple[int, ...]:
        """The training steps whose weights are stored; () without a checkpoint series."""
        return self.engine.store.open(self.ref).opened.steps

    def at_step(self, step: int | None) -> Model:
        """The same model after `step` training steps; None: its final weights. Raises `BadModel`."""
        ref = replace(self.ref, checkpoint=None if step is None else index_of(self.steps, step))
        self.engine.store.open(ref)
        return Model(ref, self.engine)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Values that no file of the model states and that were assumed."""
        return self.engine.store.open(self.ref).opened.assumptions

    def tokens(self, text: str, bos: bool | None = None) -> tuple[int, ...]:
        """Ids of a text; `bos` None: as the model was trained. Raises `BadInput` without a tokenizer or if it is not Unicode."""
        tokenizer = self.engine.store.open(self.ref).opened.weights.tokenizer
        if tokenizer is None:
            raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Give tokens instead of text.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # bytes of a command line that are no UTF-8 arrive as lone surrogates
            remedy = "Save or send the text as UTF-8."
            raise BadInput("The text is not Unicode.", expected="UTF-8", got=str(error)[:120], remedy=remedy) from error
        return tokenizer.encode(text, self.config.prepend_bos if bos is None else bos)

    def subject(
        self,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | None = None,
        edits: tuple[Intervention, ...] = (),
        conventions: Conventions | None = None,
    ) -> Subject:
        """The subject of an analysis; `tokens`: integers, including those of numpy and torch.

        Raises `UsageError` for two prompts, `BadInput` for values that are not ids.
        """
        if text is not None and tokens is not None:
            raise UsageError("The prompt is given twice.", expected="text or tokens", got="both", remedy="Drop one of them.")
        if tokens is not None and bos is not None:
            raise UsageError(
                "Token ids are taken as they are.",
                expected="bos with a text",
                got=f"bos={bos} with tokens",
                remedy="Drop bos; put the id of BOS in front of the tokens if you want it.",
            )
        ids = self.tokens(text, bos) if text is not None else () if tokens is None else _ids(tokens)
        return Subject(self.ref, ids, tuple(edits), conventions or Conventions())

    def compute(
        self,
        analysis: str,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | None = None,
        edits: tuple[Intervention, ...] = (),
        conventions: Conventions | None = None,
        fresh: bool = False,
        set: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Answer:
        """The answer of an analysis. `set`: its parameters, as text (as in `circuitlab compute --set`) or as values.

        `more`: parameters whose names are not arguments here. `fresh` ignores all cached results: the answer is bit-equal at one
        thread. Raises `CircuitLabError`s.
        """
        params = params_of(find_analysis(analysis).params, _merged(set, more))
        return self.engine.answer(
            Request.named(analysis, params, self.subject(text, tokens, bos, edits, conventions)), fresh=fresh
        )

    def state(
        self,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | None = None,
        heads: str | tuple[Head, ...] = (),
        destination: int | None = None,
        source: int | None = None,
        target: Target | None = None,
    ) -> State:
        """The State with this prompt and this selection.

        Raises `BadInput` for a head, position or token that does not exist.
        """
        ids = self.subject(text, tokens, bos).tokens
        state = State(self.ref, bos=self.config.prepend_bos if bos is None else bos).with_text(text or "", ids)
        head_tuple = parse(tuple[Head, ...], heads, "heads") if isinstance(heads, str) else tuple(heads)
        state = state.select(heads=chosen_heads(self.config, head_tuple)) if head_tuple else state
        for position in (destination, source):
            if position is not None and not 0 <= position < len(ids):
                positions = f"0..{len(ids) - 1}" if ids else "a position only with a prompt"
                raise BadInput("There is no such position.", expected=positions, got=str(position))
        state = state if destination is None else state.select(destination=destination, locked=True)
        state = state if source is None else state.select(source=source)
        n = self.config.d_vocab_out
        if target is not None and (bad := [i for i in target.tokens if not 0 <= i < n]):
            raise BadInput("A target is not in the vocabulary.", expected=f"ids 0..{n - 1}", got=str(bad))
        return state if target is None else state.select(target=target)

    def figure(
        self,
        panel: str,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | None = None,
        heads: str | tuple[Head, ...] = (),
        destination: int | None = None,
        out: str | Path | None = None,
        paper: Paper | None = None,
        set: Mapping[str, Any] | None = None,
        **more: Any,
    ) -> Figure:
        """The figure that a panel of the window shows, also written to `out` (PNG, SVG, PDF) if given.

        `paper`: size, font, ink and length of the caption: `lab.Paper(width_mm=174, caption="full")`. `set`: the panel's
        controls, under the names that `circuitlab panels` lists; `more`: those whose names are not arguments here.
        """
        from circuitlab.figures.contracts.panel import find_panel
        from circuitlab.figures.contracts.unasked import without_choice
        from circuitlab.report.render import figure_of, write

        declared = find_panel(panel)
        if out is not None:
            format_of(Path(out))
        state = self.state(text, tokens, bos, heads, destination).with_view(panel, params_of(declared.view, _merged(set, more)))
        drawing = without_choice(figure_of(self.engine, declared, state), not heads, destination is None)
        if out is not None:
            write(drawing, Path(out), paper or Paper())
        return drawing


def _engine_of(answer: Answer) -> Engine:
    """An engine that already has the answer's model open."""
    return _USED.get(answer.request.subject.model) or engine()


def table(answer: Answer | Difference) -> str:
    """The table of an answer or a difference as tab-separated text, with the text of each token beside its id."""
    if isinstance(answer, Difference):
        return table_text(answer.table, "\t")
    return table_text(export_of(_engine_of(answer), answer, identified=False).table(), "\t")


def difference(now: Answer, reference: Answer) -> Difference:
    """Two answers of the same analysis in one table: each number now, in the reference, and now minus the reference.

    Rows are matched by their identifying columns (`engine.export_difference`), as in the files of a panel beside a reference; a
    row that only one side has gets no difference. Raises `UsageError` if the columns differ or the rows cannot be matched.
    """
    sides = (export_of(_engine_of(answer), answer, identified=False) for answer in (now, reference))
    by_role = differences(*({"": side} for side in sides))
    if not by_role:
        names = " and ".join(answer.request.analysis.name for answer in (now, reference))
        raise UsageError(
            "These answers have no difference.",
            expected="the same columns, and rows that can be told apart",
            got=names,
            remedy="Compare two answers of one analysis that differ in the model, the prompt or the interventions.",
        )
    return by_role[""]


def save(answer: Answer | Difference, path: str | Path) -> None:
    """Write CSV, NPZ or JSON, by suffix, with the hash of the weights."""
    if isinstance(answer, Difference):
        sides = {"now": answer.now.answer, "reference": answer.reference.answer}
        identified = {name: export_of(_engine_of(one), one) for name, one in sides.items()}
        write_answers({"difference": replace(answer, **identified)}, Path(path))
        return
    write_answers({"answer": export_of(_engine_of(answer), answer)}, Path(path))


def snippet(request: Request) -> str:
    """Python code that computes the same answer ("Copy as Python"). Raises `BadModel` if the checkpoint no longer exists."""
    return snippet_of({"": request})


def snippet_of(requests: Mapping[str, Request], compared: Mapping[tuple[str, str], bool] | None = None) -> str:
    """`snippet` of several requests, each under its name in `answers`; a single request named "" becomes `answer`.

    `compared`: for the names of two answers (now, reference), whether their rows can be matched. If they can, the code also
    computes now minus the reference, under now's name in `changes`; if not, a comment says so.
    """
    models = dict.fromkeys(r.subject.model for r in requests.values())
    names = {ref: "model" if len(models) == 1 else f"model_{i}" for i, ref in enumerate(models, 1)}
    subjects = [r.subject for r in requests.values()]
    lines = ["import circuitlab.api as lab"]
    if any(s.edits for s in subjects):
        lines.append("from circuitlab.model.intervention import Intervention, Site")
    if any(s.conventions != Conventions() for s in subjects):
        lines.append("from circuitlab.model.subject import Conventions")
    lines += ["", *(f"{name} = {_opened(ref)}" for ref, name in names.items())]
    if list(requests) == [""]:
        return "\n".join([*lines, f"answer = {_computed(requests[''], 'model')}", "print(lab.table(answer))"])
    computed = (f"answers[{role!r}] = {_computed(r, names[r.subject.model])}" for role, r in requests.items())
    printed = ("for role, answer in answers.items():", '    print(f"\\n{role}\\n{lab.table(answer)}")')
    return "\n".join([*lines, "answers = {}", *computed, *printed, *_changes(compared or {})])


def _changes(compared: Mapping[tuple[str, str], bool]) -> list[str]:
    """Lines that compute now minus the reference, or a comment on why there is no difference."""
    lines = [
        f"# {now!r}: its rows cannot be matched, so there is no difference"
        for (now, _), matched in compared.items()
        if not matched
    ]
    pairs = [pair for pair, matched in compared.items() if matched]
    if not pairs:
        return lines
    subtracted = (f"changes[{now!r}] = lab.difference(answers[{now!r}], answers[{before!r}])" for now, before in pairs)
    printed = ("for role, change in changes.items():", '    print(f"\\nnow − reference: {role}\\n{lab.table(change)}")')
    return [*lines, "changes = {}", *subtracted, *printed]


def _opened(ref: ModelRef) -> str:
    step, assumed = step_of(ref), f", assume={dict(ref.assume)!r}" if ref.assume else ""
    return f"lab.open({ref.source!r}{'' if step is None else f', step={step}'}{assumed})"


def _computed(request: Request, model: str) -> str:
    subject, arguments = request.subject, [repr(request.analysis.name), f"tokens={request.subject.tokens!r}"]
    arguments += [f"edits={subject.edits!r}"] if subject.edits else []
    arguments += [f"conventions={subject.conventions!r}"] if subject.conventions != Conventions() else []
    defaults = {f.name: f.default for f in dataclasses.fields(request.params)}
    values = ((name, getattr(request.params, name)) for name in defaults)
    changed = {name: _literal(value) for name, value in values if value != defaults[name]}
    arguments += [f"set={changed!r}"] if changed else []
    return f"{model}.compute({', '.join(arguments)})"


def _literal(value: Any) -> Any:
    """The value as a user would type it: heads as "L1H3,L0H2", files by absolute path, plain values unchanged."""
    if isinstance(value, TextRef):
        return str(Path(value.path).absolute())
    if isinstance(value, tuple) and not isinstance(value, Head):
        return as_text(value) if value and all(isinstance(v, Head) for v in value) else tuple(map(_literal, value))
    return value if value is None or isinstance(value, (bool, int, float, str)) else as_text(value)


def _ids(tokens: Iterable[Any]) -> tuple[int, ...]:
    try:
        return whole_numbers(tokens, "tokens")
    except UsageError as error:
        raise BadInput(error.what, expected=error.expected, got=error.got) from error


def _merged(set_params: Mapping[str, Any] | None, more: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `set` and of the keyword arguments. Raises `UsageError` for duplicates or if `set` is not a mapping."""
    if set_params is not None and not isinstance(set_params, Mapping):
        raise UsageError(
            "The argument set cannot be read.",
            expected='a mapping such as {"heads": "L1H3"}',
            got=repr(set_params)[:80],
            remedy="Pass set as a dict of parameter names and values.",
        )
    if twice := sorted(more.keys() & (set_params or {}).keys()):
        raise UsageError(
            "A parameter is given twice.", expected="once", got=" ".join(twice), remedy="Give it in set or as an argument."
        )
    return {**(set_params or {}), **more}


__all__ = [
    "Model",
    "Paper",
    "Transformer",
    "analyses",
    "difference",
    "engine",
    "open",
    "save",
    "session",
    "snippet",
    "snippet_of",
    "table",
]
