"""Induction: the loss on a second repetition, where a head attends to find it, and which logits that raises."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from circuitlab.analysis.attention.copying_on_random_tokens import (
    CopyingHeadScoreParams,
    CopyingHeadScoreResult,
    copying_head_score,
)
from circuitlab.analysis.attention.head_scores import HeadScoresParams, HeadScoresResult, head_scores
from circuitlab.analysis.attention.pattern import AttentionParams, attention
from circuitlab.analysis.attention.prefix_matching import PrefixStripeParams, PrefixStripeResult, prefix_stripe
from circuitlab.analysis.attribution.token_attribution import TokenAttributionParams, token_attribution
from circuitlab.analysis.base import SeriesRef, TextRef
from circuitlab.analysis.behaviour.in_context import InContextParams, InContextResult, in_context
from circuitlab.analysis.ordering import descending
from circuitlab.caption_parts import Essential
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import CircuitLabError
from circuitlab.figures.contracts.common import (
    caption,
    captions,
    destination,
    head_column,
    pick_position,
    rows_of_heads,
    with_error,
)
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.hues import head_hue, hue_rgb
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import EDITED, EDITED_TIP, leading_head, of_own_texts, of_weights
from circuitlab.figures.marks import Axis, Colour, Figure, Heatmap, Hit, Lines, RowColumn, Rows, Tokens, empty, ids
from circuitlab.figures.panels.induction.text import text_page
from circuitlab.model.subject import Head, ModelRef
from circuitlab.state.state import State

ON_STRIPE, OFF_STRIPE = "on the stripe", "off the stripe"
# colours of attention off the stripe: whichever is farther from the head's hue; both can be seen on light and dark
ELSEWHERE: tuple[Colour, ...] = ((90, 150, 235), (240, 150, 50))
MEAN = "mean loss"  # drawn in one colour with a standard deviation to either side
FAINT = 0.16  # tint of a cell of the stripe that gets no attention
NO_LAYERS, CONTROL = "builtin:attn-only-0l", "without layers"
Page = Literal["loss", "stripe", "heads", "text"]


@dataclass(frozen=True)
class InductionView:
    """The controls of the induction panel."""

    page: Page = control("loss", label="", tip="Loss by index, a head's stripe, all heads, the effect in the text", kind="tabs")
    on: Literal["random", "prompt", "file"] = control(
        "random",
        label="On",
        tip="Repeated random tokens, the prompt, or pieces of a file (loss)",
        when="page",
        values=("loss", "stripe", "heads"),
    )
    edited: bool = control(
        False,
        label=EDITED,
        tip=EDITED_TIP,
        when="page",
        values=("stripe", "heads"),
        also=lambda view: view.on == "random",
    )
    curve: Literal["loss", "slope"] = control(
        "loss", label="Curve", tip="Loss by index, or its slope d loss / d ln(index)", when="page", values=("loss",)
    )
    file: str = control("", label="File", tip="A text file, split into pieces", kind="file", when="on", values=("file",))
    against: bool = control(
        True,
        label="Control",
        tip="Compare with a model without layers on the same texts: how far the texts alone lower the loss",
        when="on",
        values=("prompt", "file"),
        also=lambda view: view.page == "loss",
    )
    texts: int = control(
        32,
        label="Texts",
        tip="Number of random samples, or of pieces of the file",
        low=1,
        high=10_000,
        when="page",
        values=("loss",),
    )


def _view(state: State) -> InductionView:
    return state.view("induction", InductionView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The requests of the open page."""
    view = _view(state)
    needs_text = view.page == "text" or view.on == "prompt"
    if needs_text and not state.tokens:
        return Why("Type some text in the Prompt in which a name or a phrase occurs twice.")
    if view.page == "loss":
        return _loss_request(state, view, _control(facts) if view.against else None)
    if view.page != "text" and view.on == "file":
        return Why("Only the loss page reads a file: choose random or prompt here.")
    head = leading_head(state, facts)
    if isinstance(head, Why):
        return head
    if view.page == "stripe":
        if needs_text:
            return {"stripe": Request(prefix_stripe, PrefixStripeParams(head, "prompt"), state.subject)}
        subject, edited = of_own_texts(state, view.edited)
        return {"stripe": Request(prefix_stripe, PrefixStripeParams(head, edited=edited), subject)}
    if view.page == "heads":
        return _scores_requests(state, facts, view)
    effect = TokenAttributionParams(state.selection.target, destination(state), (head,))
    return {
        "attention": Request(attention, AttentionParams((head,)), state.subject),
        "effect": Request(token_attribution, effect, state.subject),
    }


def _control(facts: Facts) -> SeriesRef | None:
    """The shipped model without layers, if it tokenizes alike and is not the open model."""
    if not facts.config.n_layers or not facts.has_tokenizer or not (own := facts.vocabulary()):
        return None
    try:
        other = facts.others(ModelRef(NO_LAYERS))
    except CircuitLabError:
        return None  # not shipped with this copy
    return SeriesRef(NO_LAYERS) if other is not None and other.vocabulary() == own else None


def _loss_request(state: State, view: InductionView, baseline: SeriesRef | None) -> Requests | Why:
    if view.on == "prompt":
        return {"loss": Request(in_context, InContextParams(on="prompt", control=baseline), state.subject)}
    if view.on == "file" and not view.file:
        return Why("Choose a text file above: the loss is measured on its pieces.")
    edited = bool(state.subject.edits)
    params = InContextParams(texts=max(1, view.texts), edited=edited)
    params = replace(params, on="file", text=TextRef(view.file), control=baseline) if view.on == "file" else params
    return {"loss": Request(in_context, params, state.subject if edited else of_weights(state))}


def _scores_requests(state: State, facts: Facts, view: InductionView) -> Requests | Why:
    text = view.on == "prompt"
    subject, edited = (state.subject, False) if text else of_own_texts(state, view.edited)
    params = HeadScoresParams(on="text" if text else "random", edited=edited)
    if not text and head_scores.refuse(facts.config, params) is not None:
        return Why("This model's context is too short for repeated random tokens: choose the prompt.")
    return {
        "scores": Request(head_scores, params, subject),
        "copying": Request(copying_head_score, CopyingHeadScoreParams(), of_weights(state)),
    }


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The open page."""
    page = _view(state).page
    if page == "loss":
        return _loss(state, facts, answers.of("loss", in_context))
    if page == "stripe":
        return _stripe(state, facts, answers.of("stripe", prefix_stripe))
    if page == "heads":
        return _heads(state, answers.of("scores", head_scores), answers.find("copying", copying_head_score))
    return text_page(state, facts, answers.of("attention", attention), answers.find("effect", token_attribution))


def _loss(state: State, facts: Facts, answer: Answer[InContextResult]) -> Figure:
    result, view = answer.result, _view(state)
    if np.isnan(result.loss).all():
        return empty("A single token has no loss: type some more text.", "Induction")
    ys, names = _curves(answer, result, view.curve)
    if np.isfinite(result.control).any() and view.curve == "loss":
        curves_of_model = ys
        ys = memo((answer, curves_of_model), ("control", view.curve), lambda: np.vstack([curves_of_model, result.control[None]]))
        names = (*names, CONTROL)
    starts = tuple((float(s), f"repetition {i + 1}") for i, s in enumerate(result.starts))
    label = "nats" if view.curve == "loss" else "d loss / d ln(index), nats"
    is_text = answer.request.params.on != "random"  # another vocabulary splits a text into other tokens, so indices differ
    axes = memo(answer, ("axes", label), lambda: (Axis("index of the token", tokens=is_text, whole=True), Axis(label)))
    curves = Lines(
        name="loss",
        x=memo(answer, "x", lambda: np.arange(ys.shape[1], dtype=float)),
        ys=ys,
        names=names,
        hues=tuple(-2 if name == CONTROL else 0 for name in names) if names[0] == MEAN else (),
        dashed=(False, *(True for _ in names[1:])),
        marks=starts,
        x_axis=axes[0],
        y_axis=axes[1],
    )
    means = result.repetitions.mean(axis=0) if len(result.repetitions) else np.empty(0)
    title_parts = [f"repetition {i + 1}: {m:.2f} nats" for i, m in enumerate(means)]
    if np.isfinite(result.score) and not title_parts:
        title_parts.append(f"in-context score {with_error(result.score, result.error)} nats")
        if np.isfinite(result.controlled):
            title_parts.append(f"{with_error(result.controlled, result.controlled_error)} minus that of a model without layers")
    note = "the mean of a repetition leaves out its first token" if result.starts else ""
    title = " · ".join(title_parts) or "Loss by index"
    return Figure(((curves,),), title, caption(answer, _why_so_high(facts, means), note))


def _why_so_high(facts: Facts, means: np.ndarray) -> str:
    """Of a first repetition with a higher loss than if nothing were known, "" of any other. `means` [repetition], nats."""
    uniform = float(np.log(facts.config.d_vocab_out))
    if not len(means) or not means[0] > uniform:
        return ""
    return Essential(
        f"repetition 1 is above a uniform guess, {uniform:.2f} nats: the model expects text, and random tokens are none"
    )


def _curves(answer: Answer, result: InContextResult, curve: str) -> tuple[np.ndarray, tuple[str, ...]]:
    """([curve, pos], names): the mean and, where known, one standard deviation to either side; the lower one stops at 0."""
    if curve == "slope":
        return memo(answer, "slope", lambda: result.derivative[None].astype(float)), ("slope",)
    if np.isnan(result.spread).all():
        return memo(answer, "loss", lambda: result.loss[None].astype(float)), ("loss",)
    lower = lambda: np.maximum(result.loss - result.spread, 0)
    band = lambda: np.stack([result.loss, lower(), result.loss + result.spread]).astype(float)
    return memo(answer, "band", band), (MEAN, "minus sd, 0 at least", "plus sd")


def stripe_inks(head: Head) -> tuple[Colour, Colour]:
    """The colours of full attention on the stripe, the head's hue, and of attention anywhere else."""
    hue = hue_rgb(head_hue(head))
    return hue, max(ELSEWHERE, key=lambda ink: sum(abs(a - b) for a, b in zip(ink, hue, strict=True)))


def striped(result: PrefixStripeResult, head: Head) -> np.ndarray:
    """[dest, src, 3] uint8 on white: cells of the stripe in the head's hue, the others in a second hue, by attention."""
    on, off = (np.array(ink, dtype=np.float32) for ink in stripe_inks(head))
    ink = np.where(result.allowed[..., None], on, off)
    strength = np.clip(result.pattern, 0, 1) * (1 - FAINT * result.allowed) + FAINT * result.allowed
    return (255 - strength[..., None] * (255 - ink)).astype(np.uint8)


def _stripe(state: State, facts: Facts, answer: Answer[PrefixStripeResult]) -> Figure:
    result, head = answer.result, answer.request.params.head
    texts = memo(answer, "texts", lambda: facts.tokens(tuple(result.tokens.tolist())))
    axes = memo(answer, "axes", lambda: (Axis("source", texts, tokens=True), Axis("destination", texts, tokens=True)))
    own = answer.request.params.on == "prompt"
    heat = Heatmap(
        name="stripe",
        values=result.pattern,
        levels=(0.0, 1.0),
        unit="weight",
        x=axes[0],
        y=axes[1],
        rgb=memo(answer, ("rgb", head), lambda: striped(result, head)),
        legend=tuple(zip((ON_STRIPE, OFF_STRIPE), stripe_inks(head), strict=True)),
        colour_bar=False,
        row=state.selection.destination if own else None,
        col=state.selection.source if own else None,
        blank="masked",
    )
    mass = Tokens(
        name="mass",
        texts=texts,
        values=memo(answer, "mass", lambda: result.mass.astype(np.float32)),
        unit="mass on the stripe",
        tips=memo(
            answer, "tips", lambda: tuple(f"{i} {t} (id {k})" for i, (t, k) in enumerate(zip(texts, result.tokens, strict=True)))
        ),
        row=state.selection.destination if own else None,
        locked=state.selection.locked and own,
        heading="attention on the stripe, from each token that occurred before",
    )
    score = "no token occurs again here" if np.isnan(result.score) else f"{result.score:.2f} of its attention on the stripe"
    note = "stripe: the tokens after earlier copies of the one that attends"
    return Figure(((heat,), (mass,)), f"{head} · {score}", caption(answer, note), weights=(4.0, 1.0))


def _heads(state: State, answer: Answer[HeadScoresResult], copying_answer: Answer[CopyingHeadScoreResult] | None) -> Figure:
    result, copying = answer.result, None if copying_answer is None else copying_answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        prefix = result.of("prefix_matching")
        order = descending(prefix)
        layer, head = np.unravel_index(order, prefix.shape)
        i = result.names.index("prefix_matching")
        take = lambda values: values.ravel()[order]
        columns = [head_column(layer, head)]
        columns += [
            RowColumn(
                "prefix", take(prefix), digits=2, bar=True, levels=(0.0, 1.0), tip="Attention on the token after an earlier copy"
            )
        ]
        columns += [RowColumn("control", take(result.control[i]), digits=2, tip="The same positions, other tokens")]
        columns += [
            RowColumn("previous", take(result.of("previous_token")), digits=2, bar=True, tip="Attention on the token before")
        ]
        if copying is not None:
            columns += [
                RowColumn(
                    "copying",
                    take(copying.of("repeated")),
                    digits=2,
                    tip="How far it raises the tokens it attends to: −1 to 1, chance near −1",
                )
            ]
        return tuple(columns), ids(layer, head)

    columns, keys = memo((answer, copying), "rows", make)
    rows = Rows("heads", columns, keys, chosen=rows_of_heads(state, keys), ranked=True)
    return Figure(
        ((rows,),),
        "Prefix matching, previous token, copying",
        captions({"prefix matching, previous token": answer, "copying": copying_answer}),
    )


def pick(state: State, hit: Hit) -> State:
    """A row chooses its head; a token of the prompt, or a cell over it, is selected."""
    if hit.mark == "heads" and len(hit.id) == 2:
        return pick_head(state, Head(*hit.id), hit.gesture)
    if hit.mark in ("attention", "effect"):
        return pick_position(state, hit)
    if hit.mark in ("stripe", "mass") and _view(state).on == "prompt":
        if hit.mark == "stripe" and len(hit.id) == 2 and hit.gesture in ("click", "double-click"):
            return state.select(destination=hit.id[0], source=hit.id[1], locked=True, token=None)
        return pick_position(state, hit)
    return state


PANEL = register(
    Panel(
        name="induction",
        title="Induction",
        view=InductionView,
        equation="allowed sources of d: s with t_{s−1} = t_d;  prefix matching: mean over d of Σ_{s allowed} A[d,s]",
        source="Olsson et al. 2022, In-context Learning and Induction Heads; Elhage et al. 2021 for the effect in the text",
        help=(
            "An induction head completes [A][B] … [A] with [B]: at the second A it attends to the token after the first A. "
            "Loss: on repeated random tokens only induction makes the loss of the second repetition much lower than that of "
            "the first (later positions alone may lower it a little). On text, late tokens can have a lower loss because of "
            "the text itself: a model without layers shows how much, on the same texts. Stripe: the pattern of the selected "
            "head; the head's own colour marks sources that follow an earlier copy of the destination's token. Heads: the "
            "scores of every head, with a control. Text: the selected token (destination), the token its head attends to most "
            "(source), the token before that (key), and what the source adds to the next token (out)."
        ),
        requests=requests,
        draw=draw,
        optional=("effect", "copying"),
        pick=pick,
        area="bottom",
        order=145,
        opens="attention",
    )
)
