"""Spectra: eigenvalues and singular values of a head's circuits, copying scores of all heads, the positivity plane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.circuits.own_tokens import OWN, OwnTokensParams, OwnTokensResult, own_tokens
from circuitlab.analysis.circuits.token_readings import Embedding
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, copying_scores
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams, OvSpectrumResult, ov_spectrum
from circuitlab.analysis.spectra.positivity_plane import PreviousHeadSpectrumParams, previous_head_spectrum
from circuitlab.analysis.spectra.qk_spectrum import QkSpectrumParams, QkSpectrumResult, qk_spectrum
from circuitlab.counting import number
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import captions, has_mlps, rotates
from circuitlab.figures.contracts.heads import pick_head
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import (
    distance_read,
    leading_head,
    of_weights,
    pair_name,
    pick_edge,
    selected_edge,
    selected_heads,
)
from circuitlab.figures.marks import Figure, Hit, joined
from circuitlab.figures.panels.spectra.all_heads import chance, copying_page, own_share, plane_page
from circuitlab.figures.panels.spectra.chosen_heads import (
    ACROSS,
    DECADES,
    Spectrum,
    eigenvalue_planes,
    rounding_words,
    scores_of,
    singular_values,
)
from circuitlab.model.subject import Head
from circuitlab.state.state import Kind, State

MOST = 8  # heads with a plot each

Page = Literal["eigenvalues", "copying", "plane", "singular values"]


@dataclass(frozen=True)
class SpectraView:
    """The controls of the panel."""

    page: Page = control("eigenvalues", label="Page", kind="tabs")
    matrix: Literal["full", "bare"] = control(
        "full",
        label="Of",
        tip="The circuit between tokens, or W_OV and W_QK alone",
        when="page",
        values=("eigenvalues", "singular values"),
    )
    radius: Literal["linear", "log"] = control(
        "linear", label="Radius", tip="log: the radius in decades, angles unchanged", when="page", values=("eigenvalues",)
    )
    raw: bool = control(
        False, label="Raw", tip="Not centred over the vocabulary", when="page", values=("eigenvalues", "copying", "plane")
    )
    after_mlp: bool = control(
        False,
        label="After the first MLP",
        tip="Embeddings as later heads read them, W_E + MLP₀; heads of the first layer read W_E alone",
        only=has_mlps,
    )
    weighted_by: Literal["previous-token scores", "one"] = control(
        "previous-token scores",
        label="Earlier heads by",
        tip="Weights of the sum over earlier heads",
        when="page",
        values=("plane",),
    )
    distance: int = control(
        0,
        label="Distance",
        tip="From destination back to source, in tokens (rotary models)",
        low=0,
        high=1_000_000,
        only=rotates,
        when="page",
        values=("eigenvalues", "singular values"),
    )


def _view(state: State) -> SpectraView:
    return state.view("spectra", SpectraView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """The requests of the open page."""
    head = leading_head(state, facts)
    if isinstance(head, Why):
        return head
    view, subject = _view(state), of_weights(state)
    embed: Embedding = "after the first MLP" if view.after_mlp and has_mlps(facts) and view.matrix == "full" else "tokens"
    if view.page == "copying":
        return {
            "copying": Request(copying_scores, CopyingScoresParams(embed=embed), subject),
            "own": Request(own_tokens, OwnTokensParams(embed=embed), subject),
        }
    if view.page == "plane":
        if facts.config.n_layers < 2:
            return Why("A one-layer model has no earlier heads to compose with.")
        plane = PreviousHeadSpectrumParams(p=view.weighted_by, embed=embed, scores="raw" if view.raw else "centred")
        return {"plane": Request(previous_head_spectrum, plane, subject)}
    edge = selected_edge(state, facts)
    most = MOST if view.page == "eigenvalues" else 16
    heads, earlier = ((edge[1],), edge[0]) if edge is not None else (selected_heads(state, facts)[:most], None)
    side = "query" if state.selection.edge_kind == "Q" else "key"
    distance = distance_read(view.distance, facts)
    qk = QkSpectrumParams(heads, view.matrix, distance, earlier, side, _deep(embed, None, heads))
    requests: Requests = {
        "OV": Request(ov_spectrum, OvSpectrumParams(heads, view.matrix, earlier, _deep(embed, earlier, heads)), subject),
        "QK": Request(qk_spectrum, qk, subject),
    }
    own = OwnTokensParams(heads[:1], embed=_deep(embed, None, heads[:1]))
    has_own_share = view.matrix == "full" and earlier is None
    return {**requests, "own": Request(own_tokens, own, subject)} if has_own_share else requests


def _deep(embed: Embedding, earlier: Head | None, heads: tuple[Head, ...]) -> Embedding:
    """`embed`, or "tokens" if every head that reads them comes before the first MLP."""
    return embed if any(h.layer for h in ((earlier,) if earlier is not None else heads)) else "tokens"


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The open page."""
    view, own = _view(state), answers.find("own", own_tokens)
    if view.page == "copying":
        return copying_page(state, answers.of("copying", copying_scores), own, view.raw)
    if view.page == "plane":
        return plane_page(state, answers.of("plane", previous_head_spectrum), view.raw)
    ov, qk = answers.of("OV", ov_spectrum), answers.find("QK", qk_spectrum)
    by_role: dict[str, Answer[Spectrum]] = {"OV": ov} if qk is None else {"OV": ov, "QK": qk}
    own_result = None if own is None else own.result
    every = {**by_role, OWN: own}
    title = _title(ov, qk, own_result, view.raw)
    if view.page == "singular values":
        ranks = ", ".join(f"effective rank {role} {answer.result.effective_rank[0]:.1f}" for role, answer in by_role.items())
        curves = tuple(singular_values(role, answer) for role, answer in by_role.items())
        return Figure((curves,), title, captions(every, ranks, rounding_words(by_role.values()), chance(own_result)))
    log = view.radius == "log"
    planes = [eigenvalue_planes(role, answer, view.raw, log) for role, answer in by_role.items()]
    radius = (
        f"distance from the centre: log₁₀(|λ| / largest) + {DECADES}, smaller ones at the centre; angles unchanged" if log else ""
    )
    parts = captions(every, radius, chance(own_result))
    if all(len(of_role) == 1 for of_role in planes):
        return Figure((tuple(plane for of_role in planes for plane in of_role),), title, parts)
    rows = tuple(of_role[i : i + ACROSS] for of_role in planes for i in range(0, len(of_role), ACROSS))
    heads, chosen = tuple(ov.request.params.heads), selected_heads(state, facts)
    shown = (len(heads), len(chosen)) if len(heads) < len(chosen) and chosen[: len(heads)] == heads else None
    return Figure(rows, title, parts, shown)


def _title(ov: Answer[OvSpectrumResult], qk: Answer[QkSpectrumResult] | None, own: OwnTokensResult | None, raw: bool) -> str:
    """The first head of the requests, or the pair, with its scores."""
    head, earlier = ov.request.params.heads[0], ov.request.params.through
    inputs: tuple[Kind, ...] = ("V",) if qk is None else ("V", "Q" if qk.request.params.side == "query" else "K")
    copying, positivity = _score(ov, head, raw), "" if qk is None else _score(qk, head, raw)
    return joined(
        pair_name(head, earlier, *inputs),
        copying and f"OV copying {copying}",
        own_share(own, head),
        positivity and f"QK positivity {positivity}",
    )


def _score(answer: Answer[Spectrum], head: Head, raw: bool) -> str:
    """The score of one head; "" if the answer does not have it."""
    indices = np.flatnonzero((answer.result.heads == np.array(head)).all(axis=1))
    return number(float(scores_of(answer.result, raw)[indices[0]]), ".3f") if indices.size else ""


def pick(state: State, hit: Hit) -> State:
    """A point chooses its head; a row of the plane's table chooses that earlier head with the leading one."""
    if not hit.id:
        return state
    if hit.mark == "earlier" and hit.gesture in ("click", "double-click"):
        return pick_edge(state, Head(*hit.id), state.selection.head, "K")
    if hit.mark.partition(" ")[0] in ("OV", "QK", "copying", "plane") and len(hit.id) > 1:
        return pick_head(state, Head(*hit.id[:2]), hit.gesture)
    return state


PANEL = register(
    Panel(
        name="spectra",
        title="Spectra",
        view=SpectraView,
        equation="λ of W_O W_U W_E W_V (OV) and W_Kᵀ W_EᵀW_E W_Q (QK);  copying, positivity = Σλ / Σ|λ|",
        source="Elhage et al. 2021, “Summarizing OV/QK matrices”, “Mechanistic view of induction heads”",
        help=(
            "Positive eigenvalues (the tinted half) mean copying (OV) or matching (QK). Several chosen heads are drawn side by "
            "side on one scale. On the log radius the distance from the centre is the magnitude, in decades; angles do not "
            "change. A positive eigenvalue means that a mixture of tokens raises itself, not that a token does: how far a head "
            "raises the very token it reads is measured by own tokens, the share of tokens that are among the ten largest of "
            "their own row. Click a point to choose its head; Shift-click adds one."
        ),
        requests=requests,
        draw=draw,
        optional=("QK", "own"),
        pick=pick,
        of_heads=True,
        instead="Bigram shows the direct path, W_E W_U, as a table",
        area="centre",
        shortcut="Ctrl+8",
        order=80,
        opens="attention",
    )
)
