"""A trained run as a model directory with its card: text, seed, command, tokens, time, throughput, augmentation, metrics."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder, writing
from circuitlab.disk.json_types import JsonDict
from circuitlab.model.devices import devices
from circuitlab.model.records.series import FOLDER, series_of
from circuitlab.model.saving import save_directory
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.files import linked
from circuitlab.training.huggingface_export import save_gpt2, save_gpt2_checkpoint
from circuitlab.training.loop import Trainer
from circuitlab.training.metrics_file import write_model
from circuitlab.training.recipe import Optimiser, Recipe


def export(trainer: Trainer, tokenizer: Tokenizer, path: Path, command: str, hashes: Sequence[str] = ()) -> None:
    """Write the trainer's weights, checkpoints, tokenizer, metrics and card to `path`. Raises `BadMachine`.

    `command`: the command as typed; `hashes`: sha256 of each source of text, as in `identity`. Checkpoints are hard links to those of the run if disk and format allow it.
    """
    gpt2, metrics = trainer.recipe.export.format == "gpt2", trainer.measured()
    made_folder(path / FOLDER, within=trainer.out if path.is_relative_to(trainer.out) else path)
    with writing(path):
        write = save_gpt2 if gpt2 else save_directory
        write(path, trainer.config, trainer.weights.snapshot(), tokenizer, card_text(trainer, metrics, command, hashes))
    for step, source in series_of(trainer.out):
        if step > trainer.step:  # from a state that was lost: the run was resumed from an earlier one
            continue
        target = path / FOLDER / source.name
        if not gpt2:
            linked(source, target)
        elif not target.is_file():
            with writing(target):
                save_gpt2_checkpoint(source, target, trainer.config)
    write_model(path, metrics)


def lasted(seconds: float) -> str:
    """A duration for a person to read."""
    return number_of(round(seconds / 60), "minute") if seconds >= 120 else number_of(round(seconds), "second")


def device_words(device: str) -> str:
    """A device's name for a person to read."""
    title = next((d.title for d in devices() if d.name == device), device)
    n = torch.get_num_threads()
    return f"{title}, {number_of(n, 'thread')}" if device == "cpu" else title


def card_text(trainer: Trainer, measured: JsonDict, command: str, hashes: Sequence[str] = ()) -> str:
    """The card as Markdown; `measured`: the metrics of the trainer's weights."""
    recipe, c = trainer.recipe, trainer.config
    sha256 = [f", sha256 {one[:12]}" for one in hashes] or [""] * len(trainer.streams)
    lines = (f"- {s.label}: {number_of(len(s.train), 'token')}, share {s.share:.2f}" for s in trainer.streams)
    sources = "\n".join(map("".join, zip(lines, sha256, strict=True)))
    notes = "".join(f"\n{note}\n" for note in (*recipe.notes, *_format_notes(recipe)))
    o, speed = recipe.optimiser, trainer.tokens_seen / max(trainer.seconds, 1e-9)
    return f"""# {recipe.name}

{recipe.title[:1].upper() + recipe.title[1:]}: {number_of(c.n_layers, "layer")}, {number_of(c.n_heads, "head")} of {c.d_head}, d_model {c.d_model}, vocabulary {c.d_vocab}, context {c.n_ctx},
{number_of(c.n_parameters(), "parameter")}. Positions: {c.positions}. Norm: {c.norm}. MLP: {"none" if c.attention_only else c.d_mlp}. Every prompt begins with BOS.
{notes}
## Text

{sources}

## Training

- command: `{command}`
- seed {recipe.seed}; {_steps(measured["step"], o.steps)}, {number_of(measured["tokens"], "token")}, {lasted(trainer.seconds)}, {speed:,.0f} tokens/s (measuring apart)
- on {device_words(trainer.device)}; torch {torch.__version__}
- sequences: {_stages(recipe)}
- augmentation: {_augmentation(recipe)}
- {_method(o)}AdamW {o.betas}, rate {o.rate:g} with {number_of(o.warmup, "step")} of warm-up and cosine to {o.final:g} of it,
  weight decay {o.weight_decay:g}, gradient clip {o.clip:g}{_precision(o.precision)}{_share(o.loss_share)}

## Metrics

{_metrics(measured)}
"""


def _format_notes(recipe: Recipe) -> tuple[str, ...]:
    if recipe.export.format != "gpt2":
        return ()
    return (
        "A Hugging Face GPT-2 directory: `transformers` opens it with `AutoModelForCausalLM` and `AutoTokenizer`, which puts BOS\n"
        "(id 0) in front of a text as training did; without it the first positions read what they never read in training.",
    )


def _steps(done: int, planned: int) -> str:
    return number_of(done, "step") if done >= planned else f"{done:,} of {number_of(planned, 'step')}"


def _augmentation(recipe: Recipe) -> str:
    d = recipe.data
    to = lambda pair: f"{pair[0]} to {pair[1]}"
    parts = [
        (d.random_repeat, f"{d.random_repeat:.2%} of the sequences are blocks of {to(d.block)} uniformly random tokens repeated"),
        (d.self_copy, f"in {d.self_copy:.0%} of the others a segment of {to(d.segment)} tokens is copied to a later place"),
        (
            d.phrases,
            f"in {d.phrases:.0%} of the others {to(d.phrase_times)} phrases of {to(d.phrase)} tokens are repeated later",
        ),
        (d.names, f"in {d.names:.0%} of the others an invented name of {to(d.name)} tokens stands at {to(d.name_times)} places"),
        (d.passages, f"{d.passages:.0%} of the others are a passage of {to(d.passage)} tokens, said again and again to the end"),
    ]
    return ";\n  ".join(words for share, words in parts if share) or "none, the text as it is"


def _precision(name: str) -> str:
    return "" if name == "float32" else f"; matrix products in {name}, everything else in float32"


def _method(o: Optimiser) -> str:
    if o.method == "adamw":
        return ""
    return (
        f"matrices of the layers: Muon (orthogonalised momentum {o.momentum:g}, by head), rate {o.matrix_rate:g}, "
        f"weight decay {o.matrix_decay:g},\n  warm-up and cosine like the rest; everything else: "
    )


def _share(loss_share: float) -> str:
    return "" if loss_share == 1 else f"; loss of a step at {loss_share:.0%} of its positions, drawn at random"


def _stages(recipe: Recipe) -> str:
    times = lambda s: "" if s.repeats == 1 else f", shares of repetition times {s.repeats:g}"
    counts = lambda s: "" if s.counts == 1 else f", numbers of phrases and names and lengths of segments times {s.counts:g}"
    return "; ".join(f"from step {s.start}: {s.batch} × {s.context} tokens{times(s)}{counts(s)}" for s in recipe.stages)


def _metrics(measured: JsonDict) -> str:
    repeated, indices = measured["repeated"], measured["in_context_indices"]
    lines = [
        "| measured | value |",
        "|---|---|",
        f"| loss on held-out text, {number_of(measured['texts'], 'text')} of {number_of(measured['context'], 'token')} | {measured['loss']:.3f} nats |",
        f"| in-context score (indices {indices['late']} minus {indices['early']}) | {measured['in_context_score']:.3f} nats |",
        f"| {repeated['samples']} × {repeated['block']} random tokens × 2: first repetition | {measured['rep1']:.2f} nats |",
        f"| second repetition, without its first token | {measured['rep2']:.2f} nats |",
    ]
    for name in ("prefix_matching", "previous_token"):
        for layer, row in enumerate(measured["heads"][name]):
            scores = ", ".join(f"H{h} {v:.2f}" for h, v in enumerate(row))
            lines.append(f"| {name.replace('_', ' ')}, layer {layer} | {scores} |")
    return "\n".join(lines)
