"""On held-out prose: a piece said twice, where heads look, and what the words before are worth.

A piece of `PIECE` tokens is said twice after BOS. Counted are positions of the second saying whose token stood exactly once
before: what follows there is decided by one earlier token, and the *right source* is the one that came after it.

    first choice   share of these positions at which the right token is more probable than all others
    mass           attention of a head on the right source; the best induction head is the one with the most
    on BOS         attention of that head on the first token, at the same positions

Errors are over pieces. Windows for the attention on BOS are as long as the model's context allows, `WINDOW` tokens at most.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from circuitlab.analysis.attention.pattern import AttentionResult
from circuitlab.analysis.base import SeriesRef, TextRef
from circuitlab.analysis.behaviour.in_context import InContextResult
from circuitlab.analysis.behaviour.token_loss import TokenLossResult
from circuitlab.analysis.ordering import Ranks
from circuitlab.api.model import Model
from circuitlab.disk.files import write_whole
from circuitlab.model.subject import Head
from circuitlab.witnesses.estimate import Mean, mean_of

PIECE, WINDOW, PIECES = 60, 256, 64
DEAD = 0.9  # of a head's attention on BOS


class SaidTwice(NamedTuple):
    """See the module; `best` None in a model without heads. `second`: mean loss at the counted positions, nats."""

    first: Mean
    mass: Mean
    bos: Mean
    best: Head | None
    second: Mean


class Resting(NamedTuple):
    """`bos` [layer, head]: mean attention on BOS over held-out windows; `dead`: heads with `DEAD` of it, also where pieces
    are said twice. An induction head rests on BOS in most prose, and is not dead.
    """

    bos: np.ndarray
    dead: tuple[Head, ...]


def counted_positions(ids: tuple[int, ...]) -> np.ndarray:
    """Positions of BOS + piece + piece, in the second saying, whose token stood exactly once before and whose next is known."""
    half = (len(ids) - 1) // 2
    at = np.arange(1 + half, len(ids) - 1)
    return at[[ids[:i].count(ids[i]) == 1 for i in at]]


def said_twice(model: Model, pieces: np.ndarray, bos: int) -> SaidTwice:
    """The model on `pieces` [piece, PIECE] of ids, each said twice."""
    half, first, loss, mass, on_bos = pieces.shape[1], [], [], [], []
    for piece in pieces.tolist():
        ids = (bos, *piece, *piece)
        at = counted_positions(ids)
        if not len(at):
            continue
        losses = model.compute("token_loss", tokens=ids).result
        assert isinstance(losses, TokenLossResult)
        first.append(float((Ranks(losses.rank[at + 1], losses.equal[at + 1]).last == 1).mean()))
        loss.append(float(losses.loss[at + 1].mean()))
        if model.config.n_layers:
            patterns = model.compute("attention", tokens=ids).result
            assert isinstance(patterns, AttentionResult)
            mass.append(patterns.values[:, at, at - half + 1].mean(1))
            on_bos.append(patterns.values[:, at, 0].mean(1))
    if not mass:
        nothing = mean_of([])
        return SaidTwice(mean_of(first), nothing, nothing, None, mean_of(loss))
    best = int(np.mean(mass, axis=0).argmax())
    head = Head(*divmod(best, model.config.n_heads))
    column = lambda rows: mean_of([row[best] for row in rows])
    return SaidTwice(mean_of(first), column(mass), column(on_bos), head, mean_of(loss))


def resting(model: Model, windows: np.ndarray, pieces: np.ndarray, bos: int) -> Resting:
    """Where heads look in `windows` [window, pos] of held-out prose, and in `pieces` [piece, pos] said twice, BOS in front."""
    if not model.config.n_layers:
        return Resting(np.zeros((0, model.config.n_heads)), ())
    share = _on_bos(model, windows, bos)
    twice = _on_bos(model, np.concatenate([pieces, pieces], axis=1), bos)
    dead = np.argwhere((share >= DEAD) & (twice >= DEAD))
    return Resting(share, tuple(Head(int(i), int(h)) for i, h in dead))


def _on_bos(model: Model, texts: np.ndarray, bos: int) -> np.ndarray:
    """[layer, head]: mean attention on BOS of all later positions of `texts` [text, pos], BOS in front."""
    each = []
    for text in texts.tolist():
        patterns = model.compute("attention", tokens=(bos, *text)).result
        assert isinstance(patterns, AttentionResult)
        each.append(patterns.values[:, 1:, 0].mean(1))
    return np.mean(each, axis=0).reshape(model.config.n_layers, model.config.n_heads)


def in_context(model: Model, text: Path, control: str | None, texts: int = PIECES, length: int = 0) -> tuple[Mean, Mean]:
    """(score, score minus the control's) on a text file, nats; `control`: the source of a model without layers.

    `length`: tokens of a piece, 0 for the model's context. The second is NaN without a control.
    """
    chosen = {"on": "file", "text": TextRef(str(text)), "texts": texts, "length": length}
    control_ref = {} if control is None else {"control": SeriesRef(control)}
    result = model.compute("in_context", set={**chosen, **control_ref}).result
    assert isinstance(result, InContextResult)
    return mean_of(result.scores), mean_of(result.scores - result.control_scores)


class Prose(NamedTuple):
    """Held-out prose: `pieces` [piece, PIECE] and `windows` [window, pos] of ids without BOS, and a file of the text itself."""

    pieces: np.ndarray
    windows: np.ndarray
    file: Path


def written(text: str, folder: str) -> Path:
    """A text file in a folder that the caller removes."""
    path = Path(folder) / "held-out prose.txt"
    write_whole(path, text.encode("utf-8"), durable=False)
    return path


def temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder for `written`."""
    return tempfile.TemporaryDirectory(prefix="circuitlab-")
