"""A recipe: everything that decides a trained model but the text, read from TOML.

base = "NAME"              another recipe, of which this one says only what it changes (`recipe_file.py`)
title = "…"                what it is, one line: shown by `circuitlab train --help` and on the model's card
seed = 1                   of initial weights and of batches; `--seed` overrides it
vocab = 4096               tokens, the 256 bytes and BOS among them
tokenizer_bytes = 20e6     how much text the tokenizer is trained on (default 20,000,000)
positions_amplitude = 1.0  stored positions begin as this times a sinusoidal table (default 1), whose angles a token are
positions_angles = [1.0, 1e-4]  from the largest, in radians, towards the smallest in equal ratios (default: those of sinusoids)
notes = ["…"]              printed on the card

[model]                    fields of `ModelConfig`, but the vocabulary and the context:
n_layers = 2               n_heads, d_model, d_head are needed; d_mlp = 0 is attention only (default)
positions = "shortformer"  added to queries and keys only; or learned, sinusoidal, rotary, alibi, none
norm = "none"              or layer, rms; further: biases = ["q", …], activation, gated, tied, smeared_keys, rotary, …

[init]                     standard deviations of the initial weights by name, 0.02 where none is given:
W_E = 0.1                  W_E W_U W_Q W_K W_V W_O W_in W_out W_gate; gains begin at 1, biases at 0

[[stages]]                 one or more; the longest context is the model's
start = 0                  the first step of this stage; one of them starts at 0
context = 128              tokens a sequence, BOS included
batch = 16                 sequences a step
repeats = 2.0              the shares under [data], times this, as long as the stage lasts (default 1)
counts = 2.0               how many phrases and names a sequence has and how long its segment is, times this (default 1): they
                           are of a sequence, and a longer one would repeat less of itself

[data]                     changes to the text, which the card states
random_repeat = 0.0625     share of sequences that are a block of uniformly random tokens repeated (default 0)
block = [8, 63]            how long such a block is, shortest and longest
self_copy = 0.25           share of the others in which a segment is copied to a later place (default 0)
segment = [16, 63]         how long the segment is
phrases = 0.3              share of the text's sequences in which short phrases are repeated later (default 0)
phrase = [2, 12]           how long a phrase is; phrase_times = [1, 5] how many a sequence
names = 0.3                share of them in which an invented name of several tokens stands at several places (default 0)
name = [2, 4]              how many tokens it has; name_times = [2, 5] how often it stands in the sequence
passages = 0.1             share of them that are one passage, said again and again to the end (default 0)
passage = [8, 63]          how long the passage is

[optimiser]                linear warm-up, then cosine
method = "adamw"           or "muon": orthogonalised momentum for the matrices of the layers, AdamW for the rest
steps = 14000              needed
rate = 3e-3                the highest learning rate; warmup = 200 steps to it; final = 0.1 of it at the last step
betas = [0.9, 0.98]        further: weight_decay = 0.01, clip = 1.0 (largest norm of the gradient)
matrix_rate = 3e-3         of muon, its highest; momentum = 0.95, matrix_decay = 0.1 of muon
loss_share = 1.0           share of a step's positions, drawn at random, whose loss is computed
precision = "float32"      or "bfloat16": of the matrix products; weights, stream, softmax and loss stay float32

[checkpoints]              kept: step 0, `first` and its doubles, every `every` steps within `band`, and the last
first = 64
band = [2500, 7000]
every = 250

[export]
format = "circuitlab"      how OUT/model is written; "gpt2": as a Hugging Face GPT-2 directory
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from circuitlab.disk.json_types import JsonDict
from circuitlab.model.config import ModelConfig
from circuitlab.model.positions import ANGLES


@dataclass(frozen=True)
class Stage:
    """From step `start` on, sequences are `context` tokens long (BOS included), `batch` of them a step.

    `repeats`: what the shares of `Data` are multiplied by; `counts`: its `phrase_times`, `name_times` and `segment`.
    """

    start: int
    context: int
    batch: int
    repeats: float = 1.0
    counts: float = 1.0


SHARES = ("random_repeat", "self_copy", "phrases", "names", "passages")  # the shares of `Data`


@dataclass(frozen=True)
class Data:
    """Changes to the text. The model's card states all shares.

    random_repeat: share of sequences that are a block of uniformly random tokens repeated; self_copy: share of the others in
    which a segment of `segment` (shortest, longest) tokens is copied to a later place of the same sequence; phrases: of those
    in which `phrase_times` (fewest, most) phrases of `phrase` tokens are repeated; names: of those in which an invented name of
    `name` tokens stands at `name_times` places; passages: of those whose first `passage` tokens are repeated to the end. A
    sequence has one of the four at most.
    """

    random_repeat: float = 0.0
    self_copy: float = 0.0
    block: tuple[int, int] = (8, 63)
    segment: tuple[int, int] = (16, 63)
    phrases: float = 0.0
    phrase: tuple[int, int] = (2, 12)
    phrase_times: tuple[int, int] = (1, 5)
    names: float = 0.0
    name: tuple[int, int] = (2, 4)
    name_times: tuple[int, int] = (2, 5)
    passages: float = 0.0
    passage: tuple[int, int] = (8, 63)

    def times(self, factor: float) -> Data:
        """The same with all shares multiplied."""
        return replace(self, **{name: factor * getattr(self, name) for name in SHARES})

    def counted(self, factor: float) -> Data:
        """The same with the numbers of phrases and names and the lengths of segments multiplied, at least 1."""
        scaled = lambda pair: tuple(max(1, round(factor * n)) for n in pair)
        return replace(self, **{name: scaled(getattr(self, name)) for name in ("phrase_times", "name_times", "segment")})


@dataclass(frozen=True)
class Optimiser:
    """AdamW (Loshchilov and Hutter 2019), linear warm-up, cosine to `final` of the rate at the last step.

    `method` "muon": the matrices of the layers by `optimisers.Muon`, with `matrix_rate`, `momentum` and `matrix_decay`, on the
    same schedule.
    `loss_share`: the loss of a step is the mean over so large a share of its positions, drawn anew each step without
    replacement; its expectation is the mean over all of them, and only what is drawn is unembedded.
    `precision` is that of the matrix products: "bfloat16" rounds their factors, while weights, gradients of weights, the
    stream, the softmax and the loss stay float32 (Micikevicius et al. 2018).
    """

    steps: int
    rate: float = 3e-3
    warmup: int = 200
    final: float = 0.1
    betas: tuple[float, float] = (0.9, 0.98)
    weight_decay: float = 0.01
    clip: float = 1.0
    precision: str = "float32"
    method: str = "adamw"
    matrix_rate: float = 3e-3
    momentum: float = 0.95
    matrix_decay: float = 0.1
    loss_share: float = 1.0


@dataclass(frozen=True)
class Checkpoints:
    """Steps that are kept: 0, powers of two from `first`, every `every` within `band`, and the last."""

    first: int = 64
    band: tuple[int, int] = (0, 0)
    every: int = 250

    def steps(self, last: int) -> tuple[int, ...]:
        """The steps, sorted."""
        steps = {0, last}
        step = self.first
        while step < last:
            steps.add(step)
            step *= 2
        steps.update(range(self.band[0], min(self.band[1], last) + 1, self.every) if self.band[1] else ())
        return tuple(sorted(steps))


@dataclass(frozen=True)
class Export:
    """How the trained model is written: "circuitlab", or "gpt2" for a Hugging Face GPT-2 directory."""

    format: str = "circuitlab"


@dataclass(frozen=True)
class Recipe:
    """A recipe; the module describes its fields. `vocab`: the tokenizer's size; `init`: standard deviations by tensor name."""

    name: str
    seed: int
    vocab: int
    model: JsonDict
    init: dict[str, float]
    stages: tuple[Stage, ...]
    optimiser: Optimiser
    data: Data = Data()
    checkpoints: Checkpoints = Checkpoints()
    export: Export = Export()
    title: str = ""
    positions_amplitude: float = 1.0
    positions_angles: tuple[float, float] = ANGLES
    tokenizer_bytes: int = 20_000_000
    notes: tuple[str, ...] = field(default=())

    def config(self) -> ModelConfig:
        """The model's configuration."""
        n_ctx = max(s.context for s in self.stages)
        derived = {"d_vocab": self.vocab, "n_ctx": n_ctx, "prepend_bos": True, "family": "circuitlab"}
        return ModelConfig.from_json({**self.model, **derived}, "the table")

    def stage(self, step: int) -> Stage:
        """The stage that `step` belongs to."""
        return max((s for s in self.stages if s.start <= step), key=lambda s: s.start)
