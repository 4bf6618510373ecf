"""Adding to an earlier `series.safetensors` what it lacks: early and late losses of each text, shares of own tokens.

Nothing else in the file changes. A source that still has as many held-out tokens as the file says gives the same windows as
before; the windows of other sources can no longer be known, and their columns are NaN.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from circuitlab.counting import number_of
from circuitlab.errors import BadInput
from circuitlab.model.loading import open_model
from circuitlab.model.records.series_measures import GONE, OWN_ARRAYS, TEXT_ARRAYS, SeriesMeasures, read_series, write_series
from circuitlab.training.corpus import Stream
from circuitlab.training.measured_texts import held_out_of, sha256
from circuitlab.training.metrics import losses, repeated_random
from circuitlab.training.series_measuring import Say, hash_of
from circuitlab.training.series_point import own_tokens

NEAR = 1e-4  # nats: the largest difference of a repeated measurement
_REMEDY = "Measure again without --add."


def add_to_series(folder: Path, streams: tuple[Stream, ...], bos: int, say: Say = lambda line: None) -> SeriesMeasures:
    """Add `TEXT_ARRAYS` and `OWN_ARRAYS` to the file of a folder, at every point whose weights it holds.

    Raises `BadModel` without a file, `BadInput` where no text is the same or the weights have other losses than the file says.
    """
    m = read_series(folder)
    windows, columns = _texts(m, streams, bos)
    points, hashes = len(m.steps), m.protocol.get("weights")
    by_text = {name: np.full((points, int(m.protocol["texts"])), np.nan, np.float32) for name in TEXT_ARRAYS}
    own_shares = {name: m[name].copy() for name in OWN_ARRAYS}
    for i, checkpoint in enumerate(m.checkpoints):
        if checkpoint == GONE:
            continue
        weights = open_model(folder, checkpoint=checkpoint).weights
        if not isinstance(hashes, list) or hashes[i : i + 1] != [hash_of(folder, checkpoint)]:
            raise BadInput(
                "The weights are not those that were measured.",
                expected=f"step {m.steps[i]}",
                got="other weights",
                remedy=_REMEDY,
            )
        random = repeated_random(weights.config.d_vocab, min(int(m.protocol["context"]), weights.config.n_ctx))
        repeated_losses = losses(weights, torch.where(random == bos, 0, random)).mean(0).numpy()
        if (difference := float(np.abs(repeated_losses - m["repeated_loss_by_index"][i]).max())) > NEAR:
            raise BadInput(
                "The weights do not reproduce the measured losses.",
                expected=f"within {NEAR:g} nats",
                got=f"{difference:.1e}",
                remedy=_REMEDY,
            )
        window_losses = losses(weights, windows).numpy()
        for name, end in zip(TEXT_ARRAYS, ("early", "late"), strict=True):
            first, last = m.protocol[end]
            by_text[name][i, columns] = window_losses[:, first - 1 : last].mean(1)
        for name, share in zip(OWN_ARRAYS, own_tokens(weights), strict=True):
            own_shares[name][i] = share
        n_texts = f"{number_of(len(columns), 'text')} of {m.protocol['texts']}"
        say(f"step {m.steps[i]}: {n_texts}, random tokens within {difference:.0e} nats")
    extended = replace(m, arrays={**m.arrays, **by_text, **own_shares})
    write_series(folder, extended)
    return extended


def _texts(m: SeriesMeasures, streams: tuple[Stream, ...], bos: int) -> tuple[torch.Tensor, np.ndarray]:
    """The windows of `m` that are still available [window, context], and which of its texts they are [window]."""
    by_label = {s.label: s for s in streams}
    windows, columns, start = [], [], 0
    for source in m.protocol["sources"]:
        count = max(1, round(int(m.protocol["texts"]) * source["share"]))
        stream = by_label.get(source["label"])
        if stream is not None and len(stream.held_out) == source["held_out"]:
            windows.append(held_out_of(replace(stream, share=1.0), bos, int(m.protocol["context"]), count))
            columns.append(np.arange(start, start + count))
        start += count
    if not windows or start != int(m.protocol["texts"]):
        earlier = ", ".join(f"{s['label']} with {s['held_out']:,}" for s in m.protocol["sources"])
        got = ", ".join(f"{s.label} with {len(s.held_out):,}" for s in streams)
        raise BadInput(
            "None of the measured texts is available.",
            expected=f"held-out tokens: {earlier}",
            got=got,
            remedy="Give the same --text as before.",
        )
    held_out = torch.cat(windows)
    if len(held_out) == start and sha256(held_out) != m.protocol["sha256"]["held_out"]:
        raise BadInput(
            "The held-out texts differ.",
            expected=m.protocol["sha256"]["held_out"][:12],
            got=sha256(held_out)[:12],
            remedy="Give the same --text as before.",
        )
    return held_out, np.concatenate(columns)
