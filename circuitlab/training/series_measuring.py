"""Measuring a training series: every checkpoint of a model folder and its final weights, into `series.safetensors` beside them.

The arrays are described in `model/records/series_measures.py`, the measurement of a point in `training/series_point.py`, the
texts in `training/measured_texts.py`. Points measured before on the same texts and the same weights are reused, from an earlier
file or from a killed attempt, so that the same command resumes where it stopped. Points whose weights were not kept stay as they
were measured, if that was on the same texts; arrays that they lack are NaN.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from circuitlab.analysis.training.scores import late_minus_early, repetitions
from circuitlab.counting import number_of
from circuitlab.disk.files import made_folder, writing
from circuitlab.disk.json_types import JsonDict
from circuitlab.disk.own_files import open_own
from circuitlab.errors import BadInput, BadMachine, BadModel
from circuitlab.model.loading import open_model
from circuitlab.model.loading.checkpoint import weight_files
from circuitlab.model.records.series import checkpoint_of
from circuitlab.model.records.series_measures import FILE, GONE, TEXT_ARRAYS, SeriesMeasures, read_series, write_series
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import Stream
from circuitlab.training.measured_texts import CONTEXT, WINDOWS, MeasuredTexts, texts_for
from circuitlab.training.series_point import measure_point
from circuitlab.training.series_points import Point, measured_points, points_of

STAGE = ".measuring"  # a folder in the model's, for the points measured so far
Say = Callable[[str], None]
Arrays = dict[str, np.ndarray]


def measure_series(
    folder: Path,
    streams: tuple[Stream, ...],
    tokenizer: Tokenizer | None = None,
    *,
    windows: int = WINDOWS,
    context: int = CONTEXT,
    many: int | None = None,
    recipe: str | None = None,
    say: Say = lambda line: None,
) -> SeriesMeasures:
    """Measure and write the series of a model folder; `tokenizer`: of `streams`, by default the model's own.

    Raises `BadModel` and `BadInput` for a model or texts that cannot be measured, `BadMachine` where the folder is not writable.
    """
    points = points_of(folder, recipe)
    weights = open_model(folder).weights
    texts = texts_for(
        weights.config, bos_of(tokenizer or weights.tokenizer, weights.config.d_vocab), streams, windows, context, many
    )
    protocol = {**texts.protocol, **_protocol(texts)}
    stage = _stage_of(folder)
    by_hash = _arrays_by_hash(folder, protocol) | _arrays_by_hash(stage, protocol)
    hashes, arrays = [hash_of(folder, p.checkpoint) for p in points], []
    for i, (point, sha256) in enumerate(zip(points, hashes, strict=True)):
        if sha256 in by_hash:
            arrays.append(by_hash[sha256])
            say(f"step {point.step}: measured before")
            continue
        start = time.monotonic()
        arrays.append(measure_point(open_model(folder, checkpoint=point.checkpoint).weights, texts))
        _write(stage, points[: i + 1], hashes, arrays, protocol)
        say(f"step {point.step} ({i + 1}/{len(points)}): {summary(arrays[-1], protocol)}  {time.monotonic() - start:.1f} s")
    rows = [*_without_weights(folder, texts, arrays[-1]), *zip(points, hashes, arrays, strict=True)]
    rows.sort(key=lambda row: row[0].step)
    measures = _write(folder, tuple(p for p, _, _ in rows), [h for _, h, _ in rows], [a for _, _, a in rows], protocol)
    shutil.rmtree(stage, ignore_errors=True)
    return measures


def set_outdated_aside(folder: Path) -> None:
    """Move measures aside that end in other final weights than the present ones; the next measurement reuses their points.

    No curve is then shown that ends elsewhere than the model beside it. Raises `BadMachine`.
    """
    try:
        hashes = read_series(folder).protocol.get("weights")
    except BadModel:  # none, or damaged: the next measurement writes it anew
        return
    final = hash_of(folder, None)
    if isinstance(hashes, list) and hashes[-1:] != [final]:
        with writing(folder / FILE):
            (folder / FILE).replace(_stage_of(folder) / FILE)


def bos_of(tokenizer: Tokenizer | None, d_vocab: int) -> int:
    """The id of BOS, which begins every text. Raises `BadModel` without a tokenizer, `BadInput` for one that does not fit."""
    if tokenizer is None:
        raise BadModel(
            "This model has no tokenizer.",
            expected="tokenizer.json beside its weights",
            got="none",
            remedy="Give one: --tokenizer FILE.",
        )
    if tokenizer.bos is None:
        raise BadInput(
            "The tokenizer has no BOS.", expected="a token that begins every text", got="none", remedy="Give another --tokenizer."
        )
    if tokenizer.n_tokens > d_vocab:
        raise BadInput(
            "The tokenizer is another model's.",
            expected=f"at most {number_of(d_vocab, 'token')}",
            got=str(tokenizer.n_tokens),
            remedy="Give the model's own: --tokenizer FILE.",
        )
    return tokenizer.bos


def summary(point: Arrays, protocol: JsonDict) -> str:
    """A line of progress on one point."""
    rep1, rep2 = repetitions(point["repeated_loss_by_index"])
    best = f"  prefix matching {point['prefix_matching'].max():.2f}" if point["prefix_matching"].size else ""
    score = late_minus_early(point["loss_by_index"], (*protocol["early"], *protocol["late"]))
    return f"loss {point['loss']:.3f}  in context {score:+.3f}  rep1 {rep1:.2f}  rep2 {rep2:.2f}{best}"


def _protocol(texts: MeasuredTexts) -> JsonDict:
    return {
        "zeroed": "rise of the mean loss without z W_O of a head, every attention pattern as it was",
        "zeroed_text": f"all tokens of {len(texts.zeroing)} of the held-out windows, evenly spaced",
        "zeroed_repeated": "second block of the repeated random tokens without its first token",
        "scores": "means over the repeated random tokens",
        "own_token": "share of tokens that are the first, or among the first ten, of their own row of W_E W_OV W_U",
        "copying": "sum of eigenvalues over sum of their moduli of W_E W_OV W_U, norms folded, W_U centred over the vocabulary",
        "dtype": "float32",
        "torch": torch.__version__,
    }


def hash_of(folder: Path, checkpoint: int | None) -> str:
    """sha256 of the weight files of a checkpoint; `checkpoint` None: of the final weights."""
    files = weight_files(folder) if checkpoint is None else (checkpoint_of(folder, checkpoint),)
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            while block := stream.read(2**20):
                digest.update(block)
    return digest.hexdigest()


def _arrays_by_hash(folder: Path, protocol: dict[str, object]) -> dict[str, Arrays]:
    """Hash of the weights -> arrays of the points measured by the same protocol in a file of `folder`; {} if it is unreadable."""
    try:
        measures = read_series(folder)
    except BadModel:
        return {}
    hashes = measures.protocol.get("weights")
    same = {k: v for k, v in measures.protocol.items() if k != "weights"} == json.loads(json.dumps(protocol))
    if not same or not isinstance(hashes, list) or len(hashes) != len(measures.steps):
        return {}
    complete = [i for i in range(len(hashes)) if not all(np.isnan(measures[name][i]).all() for name in TEXT_ARRAYS)]
    return {str(hashes[i]): {name: a[i] for name, a in measures.arrays.items()} for i in complete}


def _without_weights(folder: Path, texts: MeasuredTexts, like: Arrays) -> list[tuple[Point, str, Arrays]]:
    """(point, hash, arrays) of points on the same texts whose weights were not kept; NaN for arrays not shaped like `like`."""
    points = measured_points(folder)
    if GONE not in (p.checkpoint for p in points):
        return []
    m, protocol = read_series(folder), json.loads(json.dumps(texts.protocol))
    hashes = m.protocol.get("weights")
    if not isinstance(hashes, list) or len(hashes) != len(points) or any(m.protocol.get(k) != v for k, v in protocol.items()):
        return []
    row = lambda name, i: a[i] if (a := m.arrays[name]).shape[1:] == like[name].shape else np.full_like(like[name], np.nan)
    return [(p, str(hashes[i]), {name: row(name, i) for name in like}) for i, p in enumerate(points) if p.checkpoint == GONE]


def _stage_of(folder: Path) -> Path:
    """The folder of the points measured so far, created. Raises `BadMachine` if it cannot be written to, before any work."""
    stage = folder / STAGE
    made_folder(stage, within=folder)
    try:
        open_own(stage / "writable").close()
    except OSError as error:
        raise _unwritable(folder, error) from error
    return stage


def _write(
    folder: Path, points: tuple[Point, ...], hashes: list[str], arrays: list[Arrays], protocol: dict[str, object]
) -> SeriesMeasures:
    measures = SeriesMeasures(
        tuple(p.step for p in points),
        tuple(p.tokens for p in points),
        tuple(p.checkpoint for p in points),
        {name: np.stack([point[name] for point in arrays]) for name in arrays[0]},
        {**protocol, "weights": hashes[: len(points)]},
    )
    write_series(folder, measures)
    return measures


def _unwritable(folder: Path, error: OSError) -> BadMachine:
    return BadMachine(
        f"{FILE} cannot be written.",
        expected=f"a writable folder with room at {folder}",
        got=error.strerror or str(error),
        remedy="Copy the model to a folder of your own, or free space; the same command then resumes.",
    )
