"""The equations of the construction, one after the other: each with its check in the open model, what, why, and what if."""

from __future__ import annotations

import numpy as np

from circuitlab.analysis.checks.construction import ConstructionResult
from circuitlab.counting import number, number_of
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import caption
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Figure, Hit, Prose, RowColumn, Rows, ids
from circuitlab.figures.panels.laboratory.parameters import LaboratoryView
from circuitlab.figures.panels.laboratory.words import Words
from circuitlab.model.constructed import RopeInduction

MARK = "equations"
HOLDS = 1e-5  # of the largest entry: what float32 rounds by, and no more
LIMITS = ("attention on m − o", "value of m − o")  # "≈": what they miss is what layer 0 lets stray
OR = "   or   "  # before the form in the other variants

EQUATIONS = {
    "token embedding": Words(
        "x_i = W_E[t_i]",
        "A token is a number in a list. The embedding replaces it by a row of W_E, and that row is the stream before layer 0.",
        "Everything after it is linear maps and one softmax, which need vectors; two tokens are as alike as their rows are.",
        "One-hot rows are all equally far apart: nothing that is learned of one letter says anything of another. On a circle "
        "(variant sinusoidal) neighbours resemble each other, and layer 1 can mistake them.",
    ),
    "embedding of this model": Words(
        f"tok(t) = e_t{OR}tok(t)_j = ½ sin(t π/13 + j/10)",
        "The part tok of W_E is a formula here: a direction for each letter, or a wave whose phase is the letter.",
        "A trained embedding has no formula. With one, every later number can be worked out by hand.",
        "The waves of all letters lie in one plane: letters 13 apart are exact opposites, so no linear key is the same for all. "
        "That is why the stream also has the coordinate one.",
    ),
    "frequencies": Words(
        "θ_i = base^(−2i/d_head)",
        "Pair i of columns turns by θ_i at every step. The check reads the angle off the model’s own keys at positions 0 and 1.",
        "The first hands turn fast and tell neighbours apart, the last ones slowly and tell far positions apart. Together they "
        "name a position as the digits of a number do.",
        "All equal (θ: equal): every 2π/θ positions all hands come round again, and layer 0 cannot tell those positions apart.",
    ),
    "rotation": Words(
        "k_n = R(n) W_Kᵀ x_n, with R(m) the diagonal of 2 × 2 rotations by m θ_i",
        "A block for each pair of columns. The check turns every key by formula and compares it with the model’s.",
        "Blocks act on their own pair alone, so d_head/2 clocks run side by side in one vector.",
        "Columns that belong to no pair (a large alphabet needs some) do not turn and say nothing of position.",
    ),
    "rotations keep lengths": Words(
        "‖R(m) v‖ = ‖v‖",
        "A key is as long after it has been turned as it was before.",
        "A score can then differ between positions only by the angle. A position that made keys longer would draw attention "
        "whatever was asked for.",
        "Positions that are added to the stream instead (learned, sinusoidal) change lengths: some positions win by size.",
    ),
    "rotations add up": Words(
        "R(a) R(b) = R(a + b)",
        "Turning by b and then by a is turning by a + b, for every pair of positions in the prompt.",
        "It lets the offset be written into W_Q once: the query’s own position is added to it by the model.",
        "Rotations of three or more dimensions do not commute; in planes they do.",
    ),
    "rotations at two positions": Words(
        "R(m)ᵀ R(n) = R(n − m)",
        "Between a query at m and a key at n only the difference of the two turns is left.",
        "So a score depends on how far apart two tokens are, and not on where they stand: 5 and 3 are as 100 and 98.",
        "A head that has to know its absolute position cannot get it from this, only from the beginning of the text (BOS).",
    ),
    "constant key": Words(
        "W_Kᵀ x = c = (1, 0, 1, 0, …) for every x",
        "Every token has the same key, read from the coordinate one, which all of them share.",
        "Layer 0 shall look at a position whatever stands there. A key without content leaves only its turn to tell keys apart.",
        "Give the key a share of the token (layer 0): the head then weighs letters as well, and its diagonal gets gaps.",
    ),
    "keys": Words(
        "k_n = R(n) c",
        "The key at n is c with every hand turned n times: at 0 all point the same way, at 1 each has moved by its θ.",
        "The key of a position is its clock face, the same in every text.",
        "Without rotation all keys would be equal, and attention would be spread evenly.",
    ),
    "query matrix": Words(
        "W_Q = α W_K R(−o)ᵀ",
        "The query is the key turned back by o steps and α times as long. In columns, as it is often written: W_q = α R(−1) W_k.",
        "“Look o back” is written into the weights by one rotation: whatever the position, the query is the key of the one o "
        "before it.",
        "o = 2 copies the token two back. Rows and columns must not be mixed up: α W_K R(−o) looks ahead, where the mask hides "
        "everything but the token itself.",
    ),
    "queries": Words(
        "q_m = R(m) W_Qᵀ x_m = α R(m − o) c",
        "The model turns the query by its own position; with the −o in W_Q that is a turn by m − o.",
        "It is α times the key at m − o, so the two point exactly the same way.",
        "The first o queries point to positions before the text. Nothing stands there, and they fall on BOS or on themselves.",
    ),
    "scores": Words(
        "q_m · k_n = α cᵀ R(m − o)ᵀ R(n) c = α cᵀ R(n − m + o) c",
        "The two turns become one, by Δ = n − m + o.",
        "All that is left of two positions is Δ, and c does not depend on the tokens: one curve is the whole head.",
        "If keys have a share of the token, c is no longer the same on both sides, and the formula fails: see its row.",
    ),
    "scores as cosines": Words(
        "q_m · k_n = α Σ_i cos((n − m + o) θ_i)",
        "Each pair gives the cosine of the angle between its two hands. At Δ = 0 all of them are 1: α d_head/2.",
        "At any other Δ the hands point in different directions and their heights cancel in part: the more speeds, the more.",
        "The page Clock shows the hands and the curve at any Δ. With two hands the second peak is nearly as high as the first.",
    ),
    "attention of layer 0": Words(
        "A⁰[m, n] = softmax_n(α Σ_i cos((n − m + o) θ_i))",
        "The model’s attention against the softmax of the formula, in every cell that the mask leaves.",
        "Softmax makes ratios of differences: a rival that is α g lower has e^(−α g) of the weight.",
        "α near 0 spreads the attention evenly over everything before; the diagonal comes out as α grows.",
    ),
    "attention on m − o": Words(
        "A⁰[m, n] ≈ 1 if n = m − o, else 0",
        "How far the attention of the worst row is from 1. This is a limit and no equality: its difference is what strays.",
        "Rivals share at most N e^(−α g). From α = ln(N/ε)/g on that is below ε in every text.",
        "Lower α and watch this row grow, and with it the rows below that build on it.",
    ),
    "output of layer 0": Words(
        "o⁰_m = Σ_n A⁰[m, n] v_n W_O",
        "The head writes the average of the values, weighted by its attention.",
        "Attention decides from where, W_V and W_O decide what and to where: here tok to prev.",
        "Values know nothing of positions: only queries and keys are turned.",
    ),
    "value of m − o": Words(
        "o⁰_m ≈ v_{m−o} W_O",
        "With nearly all of the attention on one position the average is nearly the value there. The difference is what strays.",
        "From here on every position knows the token o before it. That is what induction needs and no single layer can do.",
        "A blurred copy mixes letters into prev, and layer 1 compares with the mixture.",
    ),
    "rank of layer 1": Words(
        f"W_QK¹ = W_Q W_Kᵀ has as many directions as it compares{OR}W_Q = v_q u_qᵀ, W_K = v_k u_kᵀ: one direction",
        "The largest singular value beyond those directions: 0 if there are no others. With one, a score is a number for the "
        "query times a number for the key.",
        "A product of few directions can be read: what each side reads (v) and where it is sent (u).",
        "One direction cannot tell equal from large: the page Rank one shows which letters it finds. A circle takes two.",
    ),
    "keys of layer 1": Words(
        f"k_n = W_Kᵀ h¹_n{OR}k_n = u_k (v_k · h¹_n)",
        "The key is read from the stream after layer 0: from prev, and BOS has a coordinate of its own.",
        "Read from prev it says “the token before me was …”. That is K-composition: a key that reads an earlier head.",
        "The rank-one variant reads tok instead. Its keys say what a token is, not what came before it.",
    ),
    "queries of layer 1": Words(
        f"q_m = W_Qᵀ h¹_m{OR}q_m = u_q (v_q · h¹_m)",
        "The query reads tok: “I am …, who comes after one of me?”",
        "Both are in one stream because layer 0 has added to it and replaced nothing.",
        "A query that read prev as well would look for pairs, A after B, and find fewer of them.",
    ),
    "scores of layer 1": Words(
        f"q_m · k_n = β (code(t_m) · prev_n + σ [n is BOS]){OR}q_m · k_n = (u_q · u_k)(v_q · x_m)(v_k · x_n)",
        "Equal codes score β, different ones at most what codes of two letters have in common; BOS scores β σ.",
        "No rotation acts in this layer, so the match may be anywhere before.",
        "With one direction the product is largest at an extreme letter and not at an equal one: “like attends to like” holds "
        "for the two extremes only.",
    ),
    "attention of layer 1": Words(
        "A¹[m, n] = softmax_n(q_m · k_n)",
        "The model’s attention against the softmax of the formula.",
        "Every position after an earlier occurrence of t_m scores the same, so several of them share.",
        "Lower β: letters that do not match take a share. Without BOS a new letter must attend to something wrong.",
    ),
    "induction": Words(
        "… A B … A  →  B",
        "At how many positions whose token has occurred before the model’s first choice is not what has followed it most often: "
        "the difference is that number, the size all of them.",
        "Layer 0 marks B with “after A”; layer 1, at the last A, looks for that mark and copies what stands there.",
        "Cut either head in any panel: nothing is predicted any more. A text without a repeat rests on BOS.",
    ),
    "stream after layer 0": Words(
        "h¹_m = h⁰_m + o⁰_m",
        "The head’s output is added to the stream.",
        "Without the sum a position would hold the token before it and have forgotten its own.",
        "prev is empty before layer 0, so that nothing is covered. In a trained model the parts overlap.",
    ),
    "output of layer 1": Words(
        "o¹_m = Σ_n A¹[m, n] v_n W_O",
        "The tokens at the positions attended to, averaged, go to out, times γ.",
        "The value reads tok at n, the token after the earlier A, which is B itself: a head that copies.",
        "γ only scales it: the first choice stays, the probability changes.",
    ),
    "stream after layer 1": Words(
        "h²_m = h¹_m + o¹_m",
        "The last sum: tok, prev and out stand side by side in the stream.",
        "Each step has added one thing, and the page Stream shows all three.",
        "An MLP or a third layer would read all of them.",
    ),
    "logits": Words(
        "logits_m = h²_m W_U (+ b_U)",
        "The unembedding reads out, and gives each token a number. There is no bias here.",
        "W_U does not read tok or prev: the direct path adds nothing, and the prediction is the head’s alone.",
        "Let it read tok too, with the logarithms of counts: that is a bigram model, on which induction would be added.",
    ),
    "probabilities": Words(
        "P(t) = e^logit(t) / Σ e^logit",
        "Softmax of the logits.",
        "Only differences of logits count, so a constant may be added to all of them.",
        "One continuation has nearly all; two that followed equally often have a half each.",
    ),
    "prediction": Words(
        "logit(t) = γ Σ_n A¹[m, n] value(t_n) · value(t)",
        "The whole model in one line: how much of layer 1’s attention stands on t, times γ. Means over the tokens are removed.",
        "embedding → + token before (layer 0) → + token after the match (layer 1) → W_U: each layer adds one thing.",
        "With one-hot letters it counts followers. On a circle it reads the mean direction of everything attended to.",
    ),
}


def page(answer: Answer[ConstructionResult], view: LaboratoryView, p: RopeInduction) -> Figure:
    """All equations with their checks, and the chosen one explained."""
    r = answer.result
    chosen = min(max(view.equation, 0), len(r.names) - 1)
    exact = [i for i, name in enumerate(r.names) if name not in LIMITS]
    holding = sum(_holds(r, i) for i in exact)
    checked = sum(not np.isnan(r.difference[i]) for i in exact)
    rows = Rows(MARK, memo(answer, MARK, lambda: _columns(r, p)), ids(np.arange(len(r.names))), chosen=(chosen,))
    title = f"{chosen + 1} of {len(r.names)}: {r.names[chosen]}"
    text = EQUATIONS[r.names[chosen]]
    now = f"{_now(r, chosen)} {holding} of {number_of(checked, 'equation')} hold in the open model, and {len(LIMITS)} are limits."
    paragraphs = (("Now", now), ("What", text.what), ("Why", text.why), ("What if", text.what_if))
    words = Prose("words", paragraphs, _formula(r.names[chosen], p))
    return Figure(
        ((rows,), (words,)), title, caption(answer, f"holds: apart by at most {number(HOLDS, 'g')} of the largest entry")
    )


def _columns(r: ConstructionResult, p: RopeInduction) -> tuple[RowColumn, ...]:
    verdicts = [_verdict(r, i) for i in range(len(r.names))]
    return (
        RowColumn("equation", np.array(r.names, dtype=object)),
        RowColumn("", np.array([_formula(name, p) for name in r.names], dtype=object)),
        RowColumn("check", np.array(verdicts, dtype=object), tip="Whether the model’s side and the formula’s are equal"),
        RowColumn("apart", r.difference, reads="probability", tip="Largest difference of the two sides"),
        RowColumn("largest entry", r.size, digits=2, tip="Of the formula’s side", spare=True),
    )


def _formula(name: str, p: RopeInduction) -> str:
    """An equation as it is in this variant."""
    usual, _, other = EQUATIONS[name].formula.partition(OR)
    in_plane = p.variant == "rank-one" or (p.variant == "sinusoidal" and name == "embedding of this model")
    return other if other and in_plane else usual


def _holds(r: ConstructionResult, i: int) -> bool:
    return bool(r.difference[i] <= HOLDS * max(1.0, r.size[i]))


def _verdict(r: ConstructionResult, i: int) -> str:
    if np.isnan(r.difference[i]):
        return "not in this prompt"
    return "holds" if _holds(r, i) else "≈" if r.names[i] in LIMITS else "fails"


def _now(r: ConstructionResult, i: int) -> str:
    if np.isnan(r.difference[i]):
        return "The prompt is too short for it."
    apart = f"The two sides are apart by {number(r.difference[i], '.2g')} at most, of {number(r.size[i], '.3g')}."
    return f"{apart} {'It holds.' if _holds(r, i) else 'It does not hold here.' if r.names[i] not in LIMITS else ''}".strip()


def picked(view: LaboratoryView, hit: Hit) -> int:
    """The equation after a gesture on the table."""
    clicked = hit.mark == MARK and hit.id and hit.gesture in ("click", "double-click")
    return hit.id[0] if clicked else view.equation
