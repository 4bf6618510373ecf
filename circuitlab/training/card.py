"""A trained run as a model directory with its card: text, seed, command, tokens, time, augmentation, metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from circuitlab.model.saving import save_directory
from circuitlab.model.tokenizer import Tokenizer
from circuitlab.training.loop import Trainer
from circuitlab.training.recipe import Recipe


def export(trainer: Trainer, tokenizer: Tokenizer, path: Path, text: list[str]) -> None:
    """Write the trainer's weights, tokenizer, metrics and card to `path`."""
    card = card_text(trainer, text)
    save_directory(path, trainer.config, trainer.weights.snapshot(), tokenizer, card)
    (path / "metrics.json").write_text(json.dumps(trainer.history[-1], indent=1) + "\n", encoding="utf-8")


def card_text(trainer: Trainer, text: list[str]) -> str:
    """The card as Markdown."""
    recipe, found, c = trainer.recipe, trainer.history[-1], trainer.config
    sources = "\n".join(f"- {s.label}: {len(s.train):,} tokens, share {s.share:.2f}" for s in trainer.streams)
    return f"""# {recipe.name}

{recipe.title[:1].upper() + recipe.title[1:]}: {c.n_layers} layers, {c.n_heads} heads of {c.d_head}, d_model {c.d_model}, vocabulary {c.d_vocab}, context {c.n_ctx},
{c.n_parameters():,} parameters. Positions: {c.positions}. Norm: {c.norm}. MLP: {"none" if c.attention_only else c.d_mlp}. Every prompt begins with BOS.

## Text

{sources}

## Training

- command: `circuitlab train {recipe.name} --text {" ".join(text)} --out DIR`
- seed {recipe.seed}; {found["step"]:,} steps, {found["tokens"]:,} tokens, {trainer.seconds / 60:.0f} minutes
- sequences: {_stages(recipe)}
- augmentation: {recipe.data.random_repeat:.2%} of the sequences are blocks of random tokens repeated; in {recipe.data.self_copy:.0%} of the others a segment is copied
  to a later place
- AdamW {recipe.optimiser.betas}, rate {recipe.optimiser.rate:g} with {recipe.optimiser.warmup} steps of warm-up and cosine to {recipe.optimiser.final:g} of it,
  weight decay {recipe.optimiser.weight_decay:g}, gradient clip {recipe.optimiser.clip:g}

## Metrics

{_metrics(found)}
"""


def _stages(recipe: Recipe) -> str:
    return "; ".join(f"from step {s.start}: {s.batch} × {s.context} tokens" for s in recipe.stages)


def _metrics(found: dict[str, Any]) -> str:
    repeated, indices = found["repeated"], found["in_context_indices"]
    lines = [
        "| measured | value |",
        "|---|---|",
        f"| loss on held-out text, {found['texts']} texts of {found['context']} tokens | {found['loss']:.3f} nats |",
        f"| in-context score (indices {indices['late']} minus {indices['early']}) | {found['in_context_score']:.3f} nats |",
        f"| {repeated['samples']} × {repeated['block']} random tokens × 2: first repetition | {found['rep1']:.2f} nats |",
        f"| second repetition, without its first token | {found['rep2']:.2f} nats |",
    ]
    for name in ("prefix_matching", "previous_token"):
        for layer, row in enumerate(found["heads"][name]):
            scores = ", ".join(f"H{h} {v:.2f}" for h, v in enumerate(row))
            lines.append(f"| {name.replace('_', ' ')}, layer {layer} | {scores} |")
    return "\n".join(lines)
