"""Spectra: eigenvalues and singular values of a head's circuits, copying scores of all heads, the positivity plane."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from circuitlab.analysis.circuits.own_tokens import OwnTokensParams, OwnTokensResult, own_tokens
from circuitlab.analysis.circuits.vocabulary_rows import Embedding
from circuitlab.analysis.spectra.copying_scores import CopyingScoresParams, CopyingScoresResult, copying_scores
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumParams, OvSpectrumResult, ov_spectrum
from circuitlab.analysis.spectra.positivity_plane import (
    PreviousHeadSpectrumParams,
    PreviousHeadSpectrumResult,
    previous_head_spectrum,
)
from circuitlab.analysis.spectra.qk_spectrum import QkSpectrumParams, QkSpectrumResult, qk_spectrum
from circuitlab.counting import number_of
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import captions, has_mlps, number, once, rotates, top_level
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.pivot import chosen, distance_read, leading, of_weights, pair, pair_name, pick_edge, refused
from circuitlab.figures.marks import Axis, Figure, Hit, Lines, Points, RowColumn, Rows, empty, ids
from circuitlab.figures.panels.overview import pick_head
from circuitlab.model.subject import Head
from circuitlab.session.state import Kind, State

DECADES = 4  # of the logarithmic radius; smaller eigenvalues stand at the centre
MOST = 8  # heads, a small multiple each
ACROSS = 4  # of them side by side
BINS = np.linspace(-1, 1, 21)
COPYING = Axis("OV copying, Σλ / Σ|λ|")

Page = Literal["eigenvalues", "copying", "plane", "singular values"]


@dataclass(frozen=True)
class SpectraView:
    """The controls of the spectra."""

    page: Page = control("eigenvalues", label="Page", kind="tabs")
    matrix: Literal["full", "bare"] = control(
        "full",
        label="Of",
        tip="The circuit between tokens, or W_OV and W_QK alone",
        when="page",
        values=("eigenvalues", "singular values"),
    )
    radius: Literal["linear", "log"] = control(
        "linear", label="Radius", tip="log keeps the angle", when="page", values=("eigenvalues",)
    )
    raw: bool = control(
        False, label="Raw", tip="Not centred over the vocabulary", when="page", values=("eigenvalues", "copying", "plane")
    )
    after_mlp: bool = control(
        False,
        label="After the first MLP",
        tip="Tokens as later heads meet them: W_E + MLP₀; heads of the first layer read the token itself",
        only=has_mlps,
    )
    weighted_by: Literal["previous-token scores", "one"] = control(
        "previous-token scores",
        label="Earlier heads by",
        tip="How the earlier heads are summed",
        when="page",
        values=("plane",),
    )
    distance: int = control(
        0,
        label="Distance",
        tip="How far behind the source stands (rotary models)",
        low=0,
        high=1_000_000,
        only=rotates,
        when="page",
        values=("eigenvalues", "singular values"),
    )


def _view(state: State) -> SpectraView:
    return state.view("spectra", SpectraView)


def requests(state: State, facts: Facts) -> Requests | Why:
    """What the open page shows."""
    if (why := refused(facts)) is not None:
        return why
    head = leading(state, facts)
    if isinstance(head, Why):
        return head
    view, subject = _view(state), of_weights(state)
    embed: Embedding = "after the first MLP" if view.after_mlp and has_mlps(facts) and view.matrix == "full" else "tokens"
    if view.page == "copying":
        asked = {"copying": Request(copying_scores, CopyingScoresParams(embed=embed), subject)}
        own = OwnTokensParams(embed=embed)
        return asked if own_tokens.refuse(facts.config, own) else asked | {"own": Request(own_tokens, own, subject)}
    if view.page == "plane":
        if facts.config.n_layers < 2:
            return Why("This model has one layer: no head has an earlier one to look behind.")
        return {"plane": Request(previous_head_spectrum, PreviousHeadSpectrumParams(p=view.weighted_by, embed=embed), subject)}
    edge = pair(state, facts)
    most = MOST if view.page == "eigenvalues" else 16
    heads, behind = ((edge[1],), edge[0]) if edge is not None else (chosen(state, facts)[:most], None)
    side = "query" if state.selection.edge_kind == "Q" else "key"
    distance = distance_read(view.distance, facts)
    qk = QkSpectrumParams(heads, view.matrix, distance, behind, side, _deep(embed, None, heads))
    asked = {
        "OV": Request(ov_spectrum, OvSpectrumParams(heads, view.matrix, behind, _deep(embed, behind, heads)), subject),
        "QK": Request(qk_spectrum, qk, subject),
    }
    own = OwnTokensParams(heads[:1], embed=_deep(embed, None, heads[:1]))
    alone = view.matrix == "full" and behind is None and own_tokens.refuse(facts.config, own) is None
    return asked | ({"own": Request(own_tokens, own, subject)} if alone else {})


def _deep(embed: Embedding, earlier: Head | None, heads: tuple[Head, ...]) -> Embedding:
    """`embed`, or the tokens themselves where all that read them stand before the first MLP."""
    return embed if any(h.layer for h in ((earlier,) if earlier is not None else heads)) else "tokens"


def figure(state: State, facts: Facts, now: Answers, ref: Answers) -> Figure:
    """The page that is open."""
    asked = requests(state, facts)
    if isinstance(asked, Why):
        return empty(asked.text, "Spectra")
    view = _view(state)
    if not now:
        return Figure(title="Spectra")
    if next(iter(asked)) not in now:
        return Figure(title="Spectra")
    if view.page == "copying":
        return _copying(state, view, now)
    if view.page == "plane":
        return _plane(state, view, now["plane"])
    roles = tuple(role for role in ("OV", "QK") if role in now)
    if view.page == "eigenvalues":
        each = {role: _eigenvalues(role, now[role], view) for role in roles}
        rows = [made[i : i + ACROSS] for made in each.values() for i in range(0, len(made), ACROSS)]
        alone = all(len(made) == 1 for made in each.values())
        grid = (tuple(mark for row in rows for mark in row),) if alone else tuple(rows)
        count, wanted = max(map(len, each.values())), len(chosen(state, facts))
        shown = (count, wanted) if not alone and count < wanted else None
    else:
        grid, shown = (tuple(_singular(role, now[role], view, state) for role in roles),), None
    rank = _ranks(now) if view.page == "singular values" else ""
    return Figure(grid, _scores(now, view), captions(tuple(now.values()), _radius(view), rank, _chance(now)), shown)


def _chance(now: Answers) -> str:
    """By how much of its own tokens a head of no meaning would stand out, "" where that was not asked for."""
    own = now["own"].result if "own" in now else None
    return f"own token in the top 10: chance {own.chance10:.4f}" if isinstance(own, OwnTokensResult) else ""


def _own(now: Answers, head: Head) -> str:
    """How many tokens stand in the top ten of their own row, for a title; "" where that is not known."""
    own = now["own"].result if "own" in now else None
    if not isinstance(own, OwnTokensResult) or not np.isfinite(own.top10[head]):
        return ""
    return f"own token in the top 10 of {own.top10[head]:.1%} of rows"


def _radius(view: SpectraView) -> str:
    if view.page != "eigenvalues" or view.radius == "linear":
        return ""
    return f"distance from the centre: log₁₀(|λ| / largest) + {DECADES}, smaller ones at the centre; angles kept"


def _of(result: Any, raw: bool) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues [n, d_head] and the score [n] of an OV or a QK spectrum."""
    values = result.eigenvalues_raw if raw else result.eigenvalues
    if isinstance(result, OvSpectrumResult):
        return values, result.copying_raw if raw else result.copying
    assert isinstance(result, QkSpectrumResult)
    return values, result.positivity_raw if raw else result.positivity


def _scores(now: Answers, view: SpectraView) -> str:
    """The first head that was asked for, or the pair, with its scores."""
    head, behind = next(iter(now.values())).request.params.heads[0], _behind(now)
    ways = list[Kind](("V",) if "OV" in now else ())
    if "QK" in now:
        ways.append("Q" if now["QK"].request.params.side == "query" else "K")
    said = [pair_name(head, behind, *ways)]
    for role, name in (("OV", "copying"), ("QK", "positivity")):
        if role not in now:
            continue
        result: Any = now[role].result
        place = np.flatnonzero((result.heads == np.array(head)).all(axis=1))
        if place.size:
            said.append(f"{role} {name} {_of(result, view.raw)[1][place[0]]:.3f}")
        if role == "OV" and (own := _own(now, head)):
            said.append(own)
    return " · ".join(said)


def _behind(now: Answers) -> Head | None:
    """The earlier head behind which the spectra were asked for."""
    params: Any = next(iter(now.values())).request.params
    return params.through if isinstance(params, OvSpectrumParams) else params.behind


def _ranks(now: Answers) -> str:
    ranked = (role for role in ("OV", "QK") if role in now)
    said = [f"effective rank {role} {now[role].result.effective_rank[0]:.1f}" for role in ranked]  # type: ignore[attr-defined]
    return ", ".join(said)


def _eigenvalues(role: str, answer: Answer, view: SpectraView) -> tuple[Points, ...]:
    """A plane a head, all on one scale; one head's is called by the role alone."""
    result: Any = answer.result

    def make() -> tuple[Points, ...]:
        values, scores = _of(result, view.raw)
        shown = values if view.radius == "linear" else on_log_radius(values)
        heads = [Head(int(a), int(b)) for a, b in result.heads]
        reach = 1.05 * top_level(np.concatenate([np.real(shown).ravel(), np.imag(shown).ravel()]))
        rings = tuple((float(k), f"10⁻{'⁰¹²³⁴'[DECADES - k]}" if k < DECADES else "largest") for k in range(1, DECADES + 1))
        parts = "" if view.radius == "linear" else ", log |λ|"
        made = []
        for i, head in enumerate(heads):
            n = values.shape[1]
            name, of = (role, role) if len(heads) == 1 else (f"{role} {head}", f"{head} {role} {number(scores[i], '.2f')}")
            made.append(
                Points(
                    name=name,
                    x=np.real(shown[i]).copy(),
                    y=np.imag(shown[i]).copy(),
                    ids=ids(np.full(n, head.layer), np.full(n, head.head), np.arange(n)),
                    hues=np.full(n, head_hue(head)),
                    tips=tuple(f"{head} {role} λ = {_complex(v)} · |λ| {abs(v):.4g}" for v in values[i]),
                    x_axis=Axis(f"{of}: Re λ{parts}"),
                    y_axis=Axis("Im λ" if i % ACROSS == 0 else ""),
                    equal=True,
                    size=6.0,
                    sight=(-reach, reach, -reach, reach),
                    origin=True,
                    rings=() if view.radius == "linear" else rings,
                )
            )
        return tuple(made)

    return once(answer, ("planes", view.raw, view.radius), make)


def _complex(value: complex) -> str:
    sign = "+" if value.imag >= 0 else "−"
    return f"{value.real:.4g} {sign} {abs(value.imag):.4g}i".replace("-", "−")


def on_log_radius(values: np.ndarray) -> np.ndarray:
    """Eigenvalues with the angle kept and the radius log₁₀(|λ| / largest) + DECADES, 0 for those smaller still."""
    size = np.abs(values)
    top = np.nanmax(size) if np.isfinite(size).any() else 0.0
    if not top > 0:
        return np.zeros_like(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = np.clip(np.log10(size / top) + DECADES, 0, None)
        return np.where(size > 0, values / np.where(size > 0, size, 1) * radius, values * 0)


def _singular(role: str, answer: Answer, view: SpectraView, state: State) -> Lines:
    result: Any = answer.result

    def make() -> dict[str, Any]:
        heads = [Head(int(a), int(b)) for a, b in result.heads]
        values = result.singular_values
        return {
            "x": np.arange(1, values.shape[1] + 1, dtype=float),
            "ys": np.where(values > 0, values, np.nan),
            "names": tuple(map(str, heads)),
            "hues": tuple(head_hue(h) for h in heads),
        }

    axes = once(answer, "axes", lambda: (Axis("index"), Axis(f"{role}: singular value", log=True)))
    return Lines(name=f"{role} values", **once(answer, "curves", make), x_axis=axes[0], y_axis=axes[1])


def _picked(state: State, keys: np.ndarray) -> tuple[int, ...]:
    heads = {(h.layer, h.head) for h in state.selection.heads}
    return tuple(i for i, key in enumerate(keys.tolist()) if tuple(key) in heads)


def _strip(answer: Answer, x: np.ndarray, y: np.ndarray, key: object) -> dict[str, Any]:
    """All heads as points: places [layer, head], ids, names, hues."""

    def make() -> dict[str, Any]:
        layer, head = np.indices(x.shape).reshape(2, -1)
        heads = [Head(int(a), int(b)) for a, b in zip(layer, head, strict=True)]
        return {
            "x": x.ravel().astype(float),
            "y": y.ravel().astype(float),
            "ids": ids(layer, head),
            "labels": tuple(map(str, heads)),
            "hues": np.array([head_hue(h) for h in heads]),
        }

    return once(answer, key, make)  # type: ignore[arg-type]


def _copying(state: State, view: SpectraView, now: Answers) -> Figure:
    answer = now["copying"]
    result = answer.result
    assert isinstance(result, CopyingScoresResult)
    ov, qk = (result.copying_raw, result.qk_positivity_raw) if view.raw else (result.copying, result.qk_positivity)

    def histogram() -> dict[str, Any]:
        counts = [np.histogram(values[np.isfinite(values)], BINS)[0] for values in (ov, qk)]
        steps = np.repeat(BINS, 2)[1:-1]  # both ends of every bin
        return {"x": steps, "ys": np.repeat(np.array(counts, dtype=float), 2, axis=1)}

    layer = np.broadcast_to(np.arange(ov.shape[0])[:, None], ov.shape)
    columns = _strip(answer, ov, layer, ("strip", view.raw))
    layers = tuple(f"L{i}" for i in range(ov.shape[0]))
    axes = once(answer, "axes", lambda: (Axis("score, Σλ / Σ|λ|"), Axis("heads"), COPYING, Axis("layer", layers)))
    curves = Lines(
        name="histogram",
        **once(answer, ("histogram", view.raw), histogram),
        names=("OV copying", "QK positivity"),
        dashed=(False, True),
        x_axis=axes[0],
        y_axis=axes[1],
    )
    strip = Points(name="copying", **columns, chosen=_picked(state, columns["ids"]), x_axis=axes[2], y_axis=axes[3])
    head = state.selection.head
    said = f"{head} copying {number(ov[head], '.3f')}"
    said = ", ".join(w for w in (said, _own(now, head), f"QK positivity {number(qk[head], '.3f')}") if w)
    copies = f"{int((ov > 0.5).sum())} of {number_of(ov.size, 'head')} above 0.5"
    own = now["own"].result if "own" in now else None
    if isinstance(own, OwnTokensResult):
        copies += f", {int((own.top10 > 0.5).sum())} with most own tokens in the top 10"
        strip = replace(strip, tips=once(now["own"], ("tips", view.raw), lambda: _strip_tips(ov, qk, own)))
    return Figure(((curves,), (strip,)), said, captions(tuple(now.values()), copies, _chance(now)), weights=(1.0, 1.6))


def _strip_tips(ov: np.ndarray, qk: np.ndarray, own: OwnTokensResult) -> tuple[str, ...]:
    heads = [Head(i, h) for i in range(ov.shape[0]) for h in range(ov.shape[1])]
    return tuple(
        f"{h} · copying {number(ov[h], '.3f')}"
        f" · own token in the top 10 of {own.top10[h]:.1%}, first in {own.top1[h]:.1%} of rows"
        f" · QK positivity {number(qk[h], '.3f')}"
        for h in heads
    )


def _plane(state: State, view: SpectraView, answer: Answer) -> Figure:
    result = answer.result
    assert isinstance(result, PreviousHeadSpectrumResult)
    weighted = result.weighted_raw if view.raw else result.weighted
    columns = _strip(answer, result.copying, weighted, ("plane", view.raw))
    axes = once(answer, "axes", lambda: (COPYING, Axis("QK positivity behind")))
    plane = Points(name="plane", **columns, chosen=_picked(state, columns["ids"]), x_axis=axes[0], y_axis=axes[1])
    head = state.selection.head
    earlier = _earlier(answer, result, view, head, state)
    value = weighted[head]
    said = f"{head} copying {number(result.copying[head], '.3f')}, behind earlier heads "
    said += "none" if np.isnan(value) else number(value, ".3f")
    marks = (plane,) if earlier is None else (plane, earlier)
    words = "upper right: looks for what an earlier head moved there, and copies"
    return Figure((marks,), said, captions((answer,), words))


def _earlier(answer: Answer, result: PreviousHeadSpectrumResult, view: SpectraView, head: Head, state: State) -> Rows | None:
    if head.layer == 0:
        return None

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        pairs = (result.pairs_raw if view.raw else result.pairs)[head][: head.layer]
        order = np.argsort(-np.nan_to_num(pairs, nan=-9), axis=None, kind="stable")
        layer, source = np.unravel_index(order, pairs.shape)
        names = np.array([f"L{a}H{b}" for a, b in zip(layer, source, strict=True)], dtype=object)
        values = pairs.ravel()[order]
        return (RowColumn("behind", names), RowColumn("positivity", values, digits=3, bar=True, levels=(-1.0, 1.0))), ids(
            layer, source
        )

    columns, keys = once(answer, ("earlier", view.raw, head), make)
    return Rows("earlier", columns, keys, heading=f"{head} looks for what these moved", ranked=True)


def pick(state: State, hit: Hit) -> State:
    """A point chooses its head; an earlier head in the plane's list makes a pair with the leading one."""
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
            "Positive eigenvalues copy (OV) or match (QK): the tinted half. Several chosen heads stand side by side, on one "
            "scale. On the log radius the distance from the centre is the size, by decades; angles are kept. A positive one "
            "raises its own mixture of tokens, not necessarily a token: whether a head raises the very token that it reads is "
            "said by own tokens, the share of tokens that stand among the ten largest of their own row. Click a point to choose "
            "its head; Shift-click adds one."
        ),
        requests=requests,
        figure=figure,
        pick=pick,
        of_heads=True,
        instead="Bigram has the direct path, W_E W_U, as a table",
        area="centre",
        shortcut="Ctrl+8",
        order=80,
        opens="attention",
    )
)
