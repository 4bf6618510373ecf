"""The section of a model's card on its checkpoint series: what was measured, a row a point, and where the phase changes are.

    python -m circuitlab.training.series_card DIR …

rewrites it from the `series.safetensors` of each folder, without measuring. Scores and windows are those of the Training panel,
by the same functions (`analysis/training/scores.py`) and at its defaults.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import numpy as np

from circuitlab.analysis.training.scores import (
    KINDS,
    TEXT,
    OnText,
    by_text,
    on_text,
    over_texts,
    phase_of,
    scores_of,
    sources_kept,
)
from circuitlab.analysis.training.series import TrainingSeriesParams
from circuitlab.counting import number, number_of
from circuitlab.disk.paths import model_dir
from circuitlab.errors import CircuitLabError
from circuitlab.model.records.series import FOLDER
from circuitlab.model.records.series_measures import FILE, GONE, SeriesMeasures, read_series
from circuitlab.training.files import write_whole

HEADING = "## Checkpoint series"
PHASES = "### Phase changes"
FINAL = "### In context, final weights"
CONTROL = "attn-only-0l"  # a model without layers
WIDTH = 130


def describe(folder: Path) -> None:
    """Write the section on `series.safetensors` into the folder's `card.md`, in place of an earlier one.

    Raises `BadModel` without a series that can be read, `BadMachine` where the card cannot be written.
    """
    card = folder / "card.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    before, _, rest = text.partition(HEADING)
    after = rest[at:] if (at := rest.find("\n## ")) >= 0 else "\n"
    text = f"{before.rstrip()}\n\n{section(read_series(folder), control_series())}\n{after.lstrip(chr(10))}".rstrip() + "\n"
    write_whole(card, text.encode())


def control_series() -> SeriesMeasures | None:
    """The measures of the shipped model without layers, None if there are none."""
    try:
        return read_series(model_dir(CONTROL))
    except CircuitLabError:
        return None


def section(m: SeriesMeasures, control: SeriesMeasures | None = None) -> str:
    """The section in Markdown; `control`: measures of a model without layers."""
    scores, means = scores_of(m)
    columns = [m["loss"], scores[:, TEXT], *means[:, 0].T, *means[:, 1].T]
    best_heads = [" | ".join(_best(m[name][i]) for name in ("prefix_matching", "previous_token")) for i in range(len(m.steps))]
    numbers = [" | ".join(f"{column[i]:.3f}" for column in columns) for i in range(len(m.steps))]
    cells = zip(m.steps, m.tokens, numbers, best_heads, strict=True)
    rows = [f"| {step:,} | {tokens:,} | {row} | {best} |" for step, tokens, row, best in cells]
    head = "| step | tokens | loss | in context | rep1 | rep2 | text1 | text2 | prefix matching | previous token |"
    description = textwrap.fill(_description(m), WIDTH)
    lines = [HEADING, "", description, "", head, "|---" * 10 + "|", *rows, "", FINAL, "", *final(m, control)]
    return "\n".join([*lines, "", PHASES, "", *phases(m), ""])


def final(m: SeriesMeasures, control: SeriesMeasures | None) -> list[str]:
    """Lines on the final weights' score on text: minus the control, and with standard errors over texts."""
    text, (a, b), (c, d) = on_text(m, control), m.protocol["early"], m.protocol["late"]
    has_control, headless = np.isfinite(text.controlled[-1]), not m["copying"].shape[1]
    sentences = (
        f"In-context score {_nats(text.score[-1])} (positions {c}–{d} minus {a}–{b} of {number_of(m.protocol['texts'], 'text')})."
    )
    if has_control and not headless:
        sentences += (
            f" Minus that of {CONTROL}, which has no layers and sees the token before and nothing else, at the same positions of"
            f" the same texts: {_nats(text.controlled[-1])}. That part of the score is the model's; the rest is in the texts."
        )
    elif headless:
        sentences += (
            " This model sees the token before and nothing else: its score is what the texts do alone, the control of others."
        )
    else:
        sentences += " No control: no model without layers was measured on the same texts."
    return [textwrap.fill(f"{sentences} {_over_texts(m, text, has_control and not headless)}", WIDTH)]


def _over_texts(m: SeriesMeasures, text: OnText, has_control: bool) -> str:
    """A sentence on the final weights' mean score over single texts, with standard errors."""
    n = int(text.each.texts[-1])
    if n < 2:
        return "The losses of single texts were not kept, so that there are no standard errors."
    which = (
        f"all {number_of(n, 'text')}"
        if n == m.protocol["texts"]
        else f"the {n} of them whose own losses were kept ({', '.join(sources_kept(m))})"
    )
    sentence = f"Over {which}: {_nats(text.each.mean[-1], text.each.error[-1])}"
    if has_control:
        sentence += f", minus the control {_nats(text.each_controlled.mean[-1], text.each_controlled.error[-1])}, texts paired"
    return f"{sentence} (standard errors over texts)."


def _nats(value: float, error: float | None = None) -> str:
    return number(value, "+.3f") + (f" ± {error:.3f}" if error is not None else "") + " nats"


def phases(m: SeriesMeasures) -> list[str]:
    """Lines: the rule, and a row for each kind of text on which the score is taken."""
    rules = TrainingSeriesParams()
    introduction = (
        f"By the rule of the Training panel. {rules.words()[:1].upper()}{rules.words()[1:]}. On repeated tokens the score is the "
        "mean loss of the second piece minus that of the first, on text what “in context” is above. Score and best "
        "prefix-matching score of a head: at the first and the last point of the window."
    )
    head = ["| score on | steps | tokens | score, nats | falls by | best prefix matching |", "|---" * 6 + "|"]
    lines = [textwrap.fill(introduction, WIDTH), "", *head, *(_phase(m, kind, rules) for kind in range(len(KINDS)))]
    return [*lines, *_fall_over_texts(m, rules)]


def _fall_over_texts(m: SeriesMeasures, rules: TrainingSeriesParams) -> list[str]:
    """A line on the fall on text with its standard error, from differences between two points text by text."""
    phase, scores = phase_of(m, TEXT, rules.rule(TEXT)), by_text(m)
    fall = None if phase is None else over_texts(scores[phase.first] - scores[phase.last])
    if fall is None or not np.isfinite(fall.error):
        return []
    texts = number_of(int(fall.texts), "text")
    sentence = f"On text, over the {texts} whose own losses were kept at both points, it falls by {fall.mean:.3f} ± "
    return ["", textwrap.fill(f"{sentence}{fall.error:.3f} nats (standard error over texts, paired).", WIDTH)]


def _phase(m: SeriesMeasures, kind: int, rules: TrainingSeriesParams) -> str:
    """The row of one kind of text."""
    phase, score = phase_of(m, kind, rules.rule(kind)), scores_of(m)[0][:, kind]
    if phase is None:
        return f"| {KINDS[kind]} | no phase change | – | – | – | – |"
    a, b = phase.first, phase.last
    prefix = "no heads" if np.isnan(phase.before) else f"{phase.before:.2f} → {phase.after:.2f}"
    window = f"{m.steps[a]:,} → {m.steps[b]:,} | {m.tokens[a]:,} → {m.tokens[b]:,}"
    return f"| {KINDS[kind]} | {window} | {score[a]:.3f} → {score[b]:.3f} | {phase.fall:.3f} | {prefix} |"


def _description(m: SeriesMeasures) -> str:
    """What the arrays are measured on, by the protocol."""
    protocol, n_stored, n_gone = m.protocol, sum(c not in (None, GONE) for c in m.checkpoints), m.checkpoints.count(GONE)
    (a, b), (c, d) = protocol["early"], protocol["late"]
    weights = f"`{FOLDER}/` holds the weights of {number_of(n_stored, 'earlier step')} in float16, "
    points = "at each of them"
    if n_gone:
        others = (
            f"those of {number_of(n_gone, 'other')} were not kept; "
            if n_stored
            else "The weights of earlier steps were not kept; "
        )
        weights, points = f"{weights if n_stored else ''}{others}", f"at {number_of(n_gone + n_stored, 'step')}"
    return (
        f"{weights}`{FILE}` holds what `circuitlab measure` found {points} and of the final weights. Losses in"
        f" nats: on {number_of(protocol['texts'], 'held-out window')} of {number_of(protocol['context'], 'token')}"
        f" (loss; in context: mean of positions {c}–{d} minus mean of {a}–{b}), on {protocol['samples']} × {protocol['block']}"
        f" random tokens twice (rep1, rep2), on {protocol['texts']} × {protocol['half']} held-out tokens twice (text1, text2;"
        " second pieces without their first token), of the last token of"
        f" {number_of(protocol['tokens'], 'fixed text')}; scores of every head,"
        " and what zeroing it does."
    )


def _best(scores: np.ndarray) -> str:
    """The largest score of [layer, head], with the name of its head."""
    if not scores.size:
        return "no heads"
    layer, head = np.unravel_index(int(np.argmax(scores)), scores.shape)
    return f"{scores[layer, head]:.2f} L{layer}H{head}"


def main(folders: list[str]) -> int:
    """Rewrite the cards of these folders; the exit status."""
    try:
        for folder in folders:
            describe(Path(folder))
    except CircuitLabError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
