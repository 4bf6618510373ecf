"""An open model: its analyses, its States and its figures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from circuitlab.analysis.attention.pattern import chosen_heads
from circuitlab.analysis.base import find_analysis
from circuitlab.api.activations import Activations
from circuitlab.api.engines import remember_engine
from circuitlab.api.generation import Generated, chosen, need_sampling
from circuitlab.api.long_work import working
from circuitlab.api.tokenized import Tokenized, tokenized
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable
from circuitlab.draw.look.paper import Paper, format_of
from circuitlab.engine.codec import params_of, parse
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import BadInput, CircuitLabError, UsageError, cause, quoted
from circuitlab.model.archives.offering import need_checkpoints
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.records.series import index_of
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from circuitlab.model.text.reading import Front, Reading
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.whole_numbers import whole_numbers
from circuitlab.notebook_html import shortened, table
from circuitlab.state.cuts import ablation
from circuitlab.state.edit_syntax import read_edits, text_of_edit
from circuitlab.state.state import State
from circuitlab.story.edits_in_model import Edit, edits_in_model
from circuitlab.story.named_in_model import no_prompt
from circuitlab.story.text_in_parameters import target_of_text, with_numbers

if TYPE_CHECKING:
    from circuitlab.report.picture import Picture

Heads = str | tuple[Head, ...]  # "L1H3,L0H2", or Heads
Edits = Edit | Iterable[Edit]  # "zero z L1H1", or an Intervention, or several of these


class Model:
    """An open model. Text is encoded with its tokenizer, with BOS prepended if the model was trained with it."""

    def __init__(
        self,
        ref: ModelRef,
        use: Engine,
        edits: tuple[Edit, ...] = (),
        conventions: Conventions | None = None,
        bos: bool | str | None = None,
        special: bool = True,
    ) -> None:
        """What every question about it has where it does not say otherwise: `edits` (`edit`), `conventions`, `bos`, `special`."""
        self.ref, self.engine, self.edits = ref, use, edits
        self.conventions, self.bos, self.special = conventions or Conventions(), bos, special
        remember_engine(ref, use)

    def __repr__(self) -> str:
        return f"<Model {' · '.join(value for _, value in self._facts())}>"

    def _repr_html_(self) -> str:
        return table((), self._facts())

    def _facts(self) -> list[tuple[str, str]]:
        """What it is, in names and words. One that the store has closed is not opened again."""
        model, name = self.engine.store.peek(self.ref), shortened(self.ref.named(1))
        if model is None:
            return [("model", name)]
        opened = model.opened
        step = "final weights" if self.ref.checkpoint is None else f"step {opened.steps[self.ref.checkpoint]:,}"
        checkpoints = number_of(len(opened.steps), "checkpoint") if opened.steps else ""
        tokenizer = "" if opened.weights.tokenizer is not None else "no tokenizer"
        assumed = ", ".join(f"{one.name} {one.value}" for one in opened.assumptions)
        facts = {"model": name, "weights": step, "sizes": opened.weights.config.sizes, "training": checkpoints}
        facts |= {"text": tokenizer, "assumed": f"assumed: {shortened(assumed)}" if assumed else ""}
        edited = "; ".join(str(text_of_edit(one) if isinstance(one, Intervention) else one) for one in self.edits)
        facts |= {"conventions": " · ".join(self.conventions.unlike(Conventions(), opened.weights.config))}
        facts |= {"edited": f"edited: {shortened(edited)}" if edited else ""}
        return [(what, words) for what, words in facts.items() if words]

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
        if step is not None and not self.steps:
            need_checkpoints(self.ref, f"step {step}")
        ref = replace(self.ref, checkpoint=None if step is None else index_of(self.steps, step))
        self.engine.store.open(ref)
        return Model(ref, self.engine, self.edits, self.conventions, self.bos, self.special)

    def edit(self, *edits: Edit) -> Model:
        """The same model with interventions in every question asked of it from here on; this one stays as it is.

        Each is a text, or a typed `Intervention`:

            model.edit("zero z L1H1").compute("token_loss", text="a b c a b")
            model.edit("scale z L1H1,L1H3 by 0.5", "zero pattern L1H0 @9<-4")
            model.edit('patch resid_pre L1 @" Elliot" from "Mr Harville and Mr Harville"')
            model.edit('project_out resid_pre L1 on " cat" - " dog"')

        Operations: zero, mean, scale … by, set … to, freeze, patch … from, project … on, project_out … on. Sites: resid_pre, q,
        k, v, scores, pattern, z, result, mlp_out. Raises `UsageError`, which says what was expected, for what cannot be read;
        what a model or a prompt lacks is found when a question is asked (`BadInput`).
        """
        for one in edits:
            if isinstance(one, str):
                read_edits(one)
        return Model(self.ref, self.engine, (*self.edits, *edits), self.conventions, self.bos, self.special)

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """Values that no file of the model states and that were assumed."""
        return self.engine.store.open(self.ref).opened.assumptions

    def tokens(self, text: str, bos: bool | str | None = None, special: bool | None = None) -> tuple[int, ...]:
        """Ids of a text; `bos` None: as the model was opened, or trained. `special`: whether spellings of special tokens become
        their ids, None: as the model was opened. Raises `BadInput` without a tokenizer or Unicode.
        """
        return self._tokenizer(text).encode(text, *self._reading(bos, special))

    def tokenized(self, text: str, bos: bool | str | None = None, special: bool | None = None) -> Tokenized:
        """The tokens of a text with positions, ids, visible pieces and words. Raises as `tokens` does.

        model.tokenized("a cat").rows()
        """
        return tokenized(self._tokenizer(text), self.tokens(text, bos, special))

    def decode(self, ids: Iterable[int], special: bool = True) -> str:
        """The text of ids, special tokens spelled, BOS in front too, as in `transformers`; `special` False: left out.

            model.decode(model.tokenized("a cat").ids)  # "<|bos|>a cat", whose `tokens(…, bos=False)` are these ids

        Raises `BadInput` without a tokenizer, or for what are no ids of it.
        """
        found = _ids(ids)
        tokenizer = self._tokenizer("")
        for token in found:
            tokenizer.raw(token)
        return tokenizer.decode(found, special)

    def generate(
        self,
        text: str | None = None,
        n: int = 20,
        temperature: float = 0.0,
        seed: int = 0,
        tokens: Iterable[int] | None = None,
        bos: bool | str | None = None,
        edits: Edits = (),
        special: bool | None = None,
    ) -> Generated:
        """What the model continues a prompt with: `n` tokens, fewer where its context is full.

            print(model.generate("The cat", n=10))
            model.generate("The cat", n=10, temperature=0.8, seed=1).new

        `temperature` 0: the most probable token; else drawn from softmax(logits / temperature), alike for the same `seed`. Each
        token is an answer of `predictions`, whose forward pass goes on from the last one's. `edits` hold for every step, on the
        prompt as it has grown: a position from the end is that of its own end. Raises `BadInput`, `TooLong`, `UsageError`.
        """
        need_sampling(n, temperature, seed)
        prompt = self.subject(text, tokens, bos, special=special).tokens
        if not prompt:
            raise BadInput("There is nothing to continue.", expected="a prompt", got="no token", remedy="Give a text or ids.")
        config, rng = self.config, np.random.default_rng(seed)
        ids = prompt
        for _ in range(min(n, config.n_ctx - len(prompt))):
            found = self.compute("predictions", tokens=ids, edits=edits, position=-1, k=1, whole=temperature > 0).result
            ids = (*ids, chosen(found.all_logits, temperature, rng) if temperature > 0 else int(found.ids[0]))
        new = ids[len(prompt) :]
        tokenizer = self.engine.store.open(self.ref).opened.weights.tokenizer
        return Generated(prompt, new, "" if tokenizer is None else tokenizer.decode(new, special=True))

    def run(
        self,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | str | None = None,
        edits: Edits = (),
        conventions: Conventions | None = None,
        cut: Heads = (),
        special: bool | None = None,
    ) -> Activations:
        """The activations of a prompt by name, read-only arrays: `model.run("a b")["layers.1.z"]` is [head, position, d_head].

        Raises as `subject` does; what is read from it as `Engine.answer`.
        """
        return Activations(self.engine, self.subject(text, tokens, bos, edits, conventions, cut, special), self.config)

    def compute_each(self, analysis: str, prompts: Iterable[str | Iterable[int]], **options: Any) -> list[Answer[Any]]:
        """The answers of an analysis for several prompts of any lengths, in their order; each a text, or ids.

            [a.result.mean for a in model.compute_each("token_loss", ["a b a b", "c d c"], cut="L1H1")]

        `options`: those of `compute`. Raises as it does, with the number of the prompt in front.
        """
        found: list[Answer[Any]] = []
        for i, prompt in enumerate(prompts):
            of = {"text": prompt} if isinstance(prompt, str) else {"tokens": prompt}
            try:
                found.append(self.compute(analysis, **of, **options))
            except CircuitLabError as error:
                error.what = f"Prompt {i}: {error.what}"
                raise
        return found

    def _begins(self, bos: bool | str | None) -> Front:
        """What is put in front of a text: as the question says, else as the model was opened, else as it was trained."""
        begins = self.bos if bos is None else bos
        return self.config.prepend_bos if begins is None else begins

    def _reading(self, bos: bool | str | None, special: bool | None) -> Reading:
        """How a text becomes ids."""
        return Reading(self._begins(bos), self.special if special is None else special)

    def _tokenizer(self, text: str) -> Tokenizer:
        """The tokenizer, for a text that it can read. Raises `BadInput`."""
        tokenizer = self.engine.store.open(self.ref).opened.weights.tokenizer
        if tokenizer is None:
            raise BadInput("The model has no tokenizer.", expected="token ids", got="text", remedy="Give tokens instead of text.")
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:  # bytes of a command line that are no UTF-8 arrive as lone surrogates
            remedy = "Save or send the text as UTF-8."
            raise BadInput("The text is not Unicode.", expected="UTF-8", got=cause(error), remedy=remedy) from error
        return tokenizer

    def _prompt(self, text: str, reading: Reading) -> tuple[int, ...]:
        """The ids of a text; one that is far too long is not read to its end. Raises `TooLong`, `BadInput`."""
        config = self.config
        return self._tokenizer(text).prompt(text, config.n_ctx, *reading)

    def subject(
        self,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | str | None = None,
        edits: Edits = (),
        conventions: Conventions | None = None,
        cut: Heads = (),
        special: bool | None = None,
    ) -> Subject:
        """The subject of an analysis; `tokens`: integers, including those of numpy and torch; `cut`: heads whose output is 0.

        `edits`: interventions, each a text such as "zero z L1H1" (see `edit`) or an `Intervention`; they follow the model's own.

        Raises `UsageError` for two prompts, `BadInput` for values that are not ids.
        """
        if text is not None and tokens is not None:
            raise UsageError("The prompt is given twice.", expected="text or tokens", got="both", remedy="Drop one of them.")
        if tokens is not None and (bos is not None or special is not None):
            name, value = ("bos", bos) if bos is not None else ("special", special)
            more = "; put the id of BOS in front of the tokens if you want it" if bos is not None else ""
            raise UsageError(
                "Token ids are taken as they are.",
                expected=f"{name} with a text",
                got=f"{name}={value} with tokens",
                remedy=f"Drop {name}{more}.",
            )
        ids = self._prompt(text, self._reading(bos, special)) if text is not None else () if tokens is None else _ids(tokens)
        under = conventions or self.conventions
        made = self._interventions(edits, ids, bos, special, under)
        return Subject(self.ref, ids, (*made, *map(ablation, _heads(cut, "cut"))), under)

    def _interventions(
        self, edits: Edits, ids: tuple[int, ...], bos: bool | str | None, special: bool | None, under: Conventions
    ) -> tuple[Intervention, ...]:
        """The model's own interventions and these, for a prompt; texts of other prompts are encoded as the prompt is."""
        if not self.edits and isinstance(edits, tuple) and not edits:
            return ()
        given = edits if isinstance(edits, Iterable) and not isinstance(edits, str) else (edits,)
        model = self.engine.store.open(self.ref)
        tokenizer = model.opened.weights.tokenizer
        first = None if tokenizer is None else tokenizer.bos
        begins = self._begins(bos)
        if bos is None and ids and (tokenizer is None or ids[:1] != tokenizer.front(begins)):
            begins = first is not None and ids[0] == first
        reading = self._reading(begins, special)
        return edits_in_model((*self.edits, *given), model, ids, reading, under)

    def compute(
        self,
        analysis: str,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | str | None = None,
        edits: Edits = (),
        conventions: Conventions | None = None,
        fresh: bool = False,
        set: Mapping[str, object] | None = None,
        cut: Heads = (),
        special: bool | None = None,
        **more: object,
    ) -> Answer[Any]:
        """The answer of an analysis. `set`: its parameters, as text (as in `circuitlab compute --set`) or as values.

        `cut`: heads whose output is 0, "L1H3,L0H2"; `edits`: any interventions, as text ("zero z L1H1", see `edit`) or typed.
        `more`: parameters whose names are not arguments here. Tokens, targets and positions among them may be texts in quotation
        marks: `token='" cat"'`, `target='" cat" - " dog"'`, `position='" cat"'`. `fresh` ignores all cached results: the answer
        is bit-equal at one thread. Raises `CircuitLabError`s.
        """
        kind, subject = find_analysis(analysis).params, self.subject(text, tokens, bos, edits, conventions, cut, special)
        values = with_numbers(kind, _merged(set, more), self.engine.store.open(self.ref), subject.tokens)
        request = Request.named(analysis, params_of(kind, values), subject)
        with working(analysis) as ctx:
            return self.engine.answer(request, ctx, fresh=fresh)

    def state(
        self,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | str | None = None,
        heads: Heads = (),
        destination: int | None = None,
        source: int | None = None,
        target: Target | str | None = None,
        cut: Heads = (),
        edits: Edits = (),
        special: bool | None = None,
    ) -> State:
        """The State with this prompt, this selection and these interventions. `cut`: heads whose output is 0.

        `target`: what is measured, `lab.Target` or words: `'" cat"'`, `'" cat" - " dog"'`, "12-34".

        Raises `BadInput` for a head, position or token that does not exist.
        """
        subject = self.subject(text, tokens, bos, edits, cut=cut, special=special)
        ids = subject.tokens
        front, spelled = self._reading(bos, special)
        tokenizer = self.engine.store.open(self.ref).opened.weights.tokenizer
        begins, other = (front is True, "") if tokenizer is None or front is True else tokenizer.chosen_front(front)
        state = State(self.ref, bos=begins, front=other, special=spelled, conventions=self.conventions).with_text(text or "", ids)
        state = replace(state, edits=tuple((edit, True) for edit in subject.edits))
        head_tuple = _heads(heads, "heads")
        state = state.select(heads=chosen_heads(self.config, head_tuple)) if head_tuple else state
        for position in (destination, source):
            if position is not None and not 0 <= position < len(ids):
                if not ids:
                    raise no_prompt(f"position {position}")
                raise BadInput(
                    "There is no such position.",
                    expected=f"0..{len(ids) - 1}",
                    got=str(position),
                    remedy="Choose a position of the prompt, counted from 0.",
                )
        state = state if destination is None else state.select(destination=destination, locked=True)
        state = state if source is None else state.select(source=source)
        n = self.config.d_vocab_out
        target = target_of_text(target, self.engine.store.open(self.ref)) if isinstance(target, str) else target
        if target is not None and (bad := [i for i in target.tokens if not 0 <= i < n]):
            raise BadInput(
                "A target is not in the vocabulary.",
                expected=f"ids 0..{n - 1}",
                got=str(bad),
                remedy="Choose an id of the vocabulary.",
            )
        return state if target is None else state.select(target=target)

    def figure(
        self,
        panel: str,
        text: str | None = None,
        tokens: Iterable[int] | None = None,
        bos: bool | str | None = None,
        heads: Heads = (),
        destination: int | None = None,
        out: str | Path | None = None,
        paper: Paper | None = None,
        set: Mapping[str, object] | None = None,
        with_view: bool = True,
        source: int | None = None,
        target: Target | str | None = None,
        cut: Heads = (),
        edits: Edits = (),
        special: bool | None = None,
        **more: object,
    ) -> Picture:
        """The figure that a panel of the window shows, drawn inside a notebook; also written to `out` (PNG, SVG, PDF) if given.

        Its marks are `.figure`, and `.save("a.pdf", width_mm=84)` writes it later.

        `paper`: size, font, ink and length of the caption: `lab.Paper(width_mm=174, caption="full")`. `set`: the panel's
        controls, under the names that `circuitlab panels` lists; `more`: those whose names are not arguments here. `with_view`:
        the file says what it shows (model, prompt, selection, controls; no folder), and the window and `lab.session` open it.
        """
        from circuitlab.figures.contracts.panel import find_panel
        from circuitlab.figures.contracts.unasked import without_choice
        from circuitlab.report.picture import Picture
        from circuitlab.report.render import figure_of, view_text, with_marks
        from circuitlab.session_files.picture_view import PictureView

        declared = find_panel(panel)
        if out is not None:
            format_of(Path(out))
            need_writable(Path(out))
        state = self.state(text, tokens, bos, heads, destination, source, target, cut, edits, special)
        state = state.with_view(panel, params_of(declared.view, _merged(set, more)))
        chosen = {"heads": bool(heads), "places": destination is not None or source is not None}
        unchosen = tuple(kind for kind, one in chosen.items() if not one)
        with working(panel) as ctx:
            figure = figure_of(self.engine, declared, state, ctx)
        drawing = without_choice(figure, "heads" in unchosen, "places" in unchosen)
        view = PictureView(state, panel, unchosen=unchosen)
        picture = Picture(drawing, paper, view=lambda: view_text(self.engine, view), working=working)
        if out is not None:
            with_marks(declared, figure)
            picture.save(out, with_view=with_view)
        return picture


def _heads(heads: Heads, name: str) -> tuple[Head, ...]:
    return parse(tuple[Head, ...], heads, name) if isinstance(heads, str) else tuple(heads)


def _ids(tokens: Iterable[object]) -> tuple[int, ...]:
    try:
        return whole_numbers(tokens, "tokens")
    except UsageError as error:
        raise BadInput(error.what, expected=error.expected, got=error.got, remedy="Give whole numbers.") from error


def _merged(set_params: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, object]:
    """The parameters of `set` and of the keyword arguments. Raises `UsageError` for duplicates or if `set` is not a mapping."""
    if set_params is not None and not isinstance(set_params, Mapping):
        raise UsageError(
            "The argument set cannot be read.",
            expected='a mapping such as {"heads": "L1H3"}',
            got=quoted(set_params),
            remedy="Pass set as a dict of parameter names and values.",
        )
    if twice := sorted(more.keys() & (set_params or {}).keys()):
        raise UsageError(
            "A parameter is given twice.", expected="once", got=" ".join(twice), remedy="Give it in set or as an argument."
        )
    return {**(set_params or {}), **more}
