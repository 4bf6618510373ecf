"""Eigenvalues and singular values of the OV and QK circuits of the chosen heads, a small plot for each head."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from circuitlab.analysis.circuits.rounding import below
from circuitlab.analysis.spectra.ov_spectrum import OvSpectrumResult
from circuitlab.analysis.spectra.qk_spectrum import QkSpectrumResult
from circuitlab.counting import number
from circuitlab.engine.request import Answer
from circuitlab.figures.contracts.common import top_level
from circuitlab.figures.contracts.hues import head_hue
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.marks import Axis, Lines, Points, ids
from circuitlab.model.subject import Head

DECADES = 4  # of the logarithmic radius; smaller eigenvalues are drawn at the centre
ACROSS = 4  # plots in a row

Spectrum = OvSpectrumResult | QkSpectrumResult


def eigenvalues_of(result: Spectrum, raw: bool) -> np.ndarray:
    """[n, d_head] eigenvalues of the raw or the centred circuit."""
    return result.eigenvalues_raw if raw else result.eigenvalues


def scores_of(result: Spectrum, raw: bool) -> np.ndarray:
    """[n] scores: copying of OV circuits, positivity of QK circuits."""
    if isinstance(result, OvSpectrumResult):
        return result.copying_raw if raw else result.copying
    return result.positivity_raw if raw else result.positivity


def _heads(result: Spectrum) -> list[Head]:
    return [Head(int(layer), int(head)) for layer, head in result.heads]


def eigenvalue_planes(role: str, answer: Answer[Spectrum], raw: bool, log: bool) -> tuple[Points, ...]:
    """A complex plane for each head, all on one scale; for a single head its label is the role alone."""
    result = answer.result

    def make() -> tuple[Points, ...]:
        values, scores = eigenvalues_of(result, raw), scores_of(result, raw)
        points = on_log_radius(values) if log else values
        heads = _heads(result)
        reach = 1.05 * top_level(np.concatenate([np.real(points).ravel(), np.imag(points).ravel()]))
        rings = tuple((float(k), f"10⁻{'⁰¹²³⁴'[DECADES - k]}" if k < DECADES else "largest") for k in range(1, DECADES + 1))
        n = values.shape[1]
        planes = []
        for i, head in enumerate(heads):
            alone = len(heads) == 1
            label = role if alone else f"{head} {role} {number(scores[i], '.2f')}"
            planes.append(
                Points(
                    name=role if alone else f"{role} {head}",
                    x=np.real(points[i]).copy(),
                    y=np.imag(points[i]).copy(),
                    ids=ids(np.full(n, head.layer), np.full(n, head.head), np.arange(n)),
                    hues=np.full(n, head_hue(head)),
                    tips=tuple(f"{head} {role} λ = {_complex(v)} · |λ| {number(abs(v), '.4g')}" for v in values[i]),
                    x_axis=Axis(f"{label}: Re λ{', log |λ|' if log else ''}"),
                    y_axis=Axis("Im λ" if i % ACROSS == 0 else ""),
                    equal=True,
                    size=6.0,
                    sight=(-reach, reach, -reach, reach),
                    origin=True,
                    rings=rings if log else (),
                )
            )
        return tuple(planes)

    return memo(answer, ("planes", raw, log), make)


def _complex(value: complex) -> str:
    sign = "+" if value.imag >= 0 else "−"
    return f"{number(value.real, '.4g')} {sign} {number(abs(value.imag), '.4g')}i"


def on_log_radius(values: np.ndarray) -> np.ndarray:
    """Eigenvalues at the same angle and radius max(0, log₁₀(|λ| / largest) + DECADES)."""
    size = np.abs(values)
    top = np.nanmax(size) if np.isfinite(size).any() else 0.0
    if not top > 0:
        return np.zeros_like(values)
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = np.clip(np.log10(size / top) + DECADES, 0, None)
        return np.where(size > 0, values / np.where(size > 0, size, 1) * radius, values * 0)


def rounding_words(answers: Iterable[Answer[Spectrum]]) -> str:
    """For captions: what is dashed; "" where nothing is."""
    marked = any(below(answer.result.singular_values, answer.result.rounding).any() for answer in answers)
    return "dashed: singular values that are rounding" if marked else ""


def singular_values(role: str, answer: Answer[Spectrum]) -> Lines:
    """Singular values over their index, a curve for each head; dashed where they are rounding."""
    result = answer.result

    def make() -> Lines:
        heads, values = _heads(result), np.where(result.singular_values > 0, result.singular_values, np.nan)
        rounded = below(result.singular_values, result.rounding)
        behind = np.flatnonzero(rounded.any(axis=1))  # heads that have such values; from the last one above on
        tail = np.where(rounded | np.roll(rounded, -1, axis=1), values, np.nan)[behind]
        names = (*map(str, heads), *(f"{heads[i]} rounding" for i in behind))
        return Lines(
            name=f"{role} values",
            x=np.arange(1, values.shape[1] + 1, dtype=float),
            ys=np.concatenate([np.where(rounded, np.nan, values), tail]),
            names=names,
            hues=tuple(head_hue(head) for head in (*heads, *(heads[i] for i in behind))),
            dashed=(False,) * len(heads) + (True,) * len(behind),
            named=tuple(range(len(heads))),
            x_axis=Axis("index"),
            y_axis=Axis(f"{role}: singular value", log=True),
        )

    return memo(answer, "curves", make)
