"""On held-out prose: a piece said twice, where heads look, what the words before are worth, how many words are split.

A piece of `PIECE` tokens is said twice, after BOS where the model begins with it. Counted are positions of the second saying
whose token stood exactly once before: what follows there is decided by one earlier token, and the *right source* is the one that
came after it.

    first choice   share of these positions at which the right token is more probable than all others
    said once      the same share of the same tokens in the first saying, where only the text's habit tells them
    mass           attention of a head on the right source; the best induction head is the one with the most
    on BOS         attention of that head on the first token, at the same positions

Errors are over pieces. Windows for the attention on the first token are as long as the model's context allows, `WINDOW` tokens
at most. The prose is that of a model's own texts, held out, or the passages that ship, which no model has been trained on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from circuitlab.analysis.attention.pattern import AttentionResult
from circuitlab.analysis.base import SeriesRef, TextRef
from circuitlab.analysis.behaviour.in_context import InContextResult
from circuitlab.analysis.behaviour.samples import pieces as cut_in_pieces
from circuitlab.analysis.behaviour.token_loss import TokenLossResult
from circuitlab.analysis.ordering import Ranks
from circuitlab.api.model import Model
from circuitlab.counting import number_of
from circuitlab.disk.files import write_whole
from circuitlab.disk.paths import resource
from circuitlab.errors import BadInput
from circuitlab.model.subject import Head
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import bos_of
from circuitlab.training.corpus import Stream
from circuitlab.training.measured_texts import held_out_of
from circuitlab.witnesses.estimate import Mean, mean_of

PIECE, WINDOW, PIECES, CONTEXT = 60, 256, 64, 512
DEAD = 0.9  # of a head's attention on the first token
PASSAGES = ("prose", "passages.txt")  # of the resources
SEED = 0  # of the pieces that are taken of a longer text


class Prose(NamedTuple):
    """Held-out prose: `pieces` [piece, PIECE] and `windows` [window, pos] of ids behind `front`, and a file of the text itself.

    `front`: BOS, or () for a model that does not begin with it. `described`: the texts and their sizes, for the record.
    """

    front: tuple[int, ...]
    pieces: np.ndarray
    windows: np.ndarray
    file: Path
    described: Mapping[str, object]


class SaidTwice(NamedTuple):
    """See the module; `best` None in a model without heads. `second`: mean loss at the counted positions, nats."""

    first: Mean
    once: Mean
    mass: Mean
    bos: Mean
    best: Head | None
    second: Mean


class Resting(NamedTuple):
    """`bos` [layer, head]: mean attention on the first token over held-out windows; `dead`: heads with `DEAD` of it, also where
    pieces are said twice. An induction head rests on BOS in most prose, and is not dead.
    """

    bos: np.ndarray
    dead: tuple[Head, ...]


def front_of(model: Model) -> tuple[int, ...]:
    """What begins every text of the model: BOS, or nothing."""
    bos = bos_of(model.engine.store.open(model.ref).opened.weights)
    return () if bos is None else (bos,)


def need_room(model: Model) -> None:
    """Raise `BadInput` for a context in which no piece can be said twice."""
    front, n_ctx = front_of(model), model.config.n_ctx
    if n_ctx < 2 * PIECE + len(front):
        raise BadInput(
            "The context has no room for a piece said twice.",
            expected=number_of(2 * PIECE + len(front), "token"),
            got=str(n_ctx),
            remedy="Measure a model with a longer context.",
        )


def tokenizer_of(model: Model) -> Tokenizer:
    """Its tokenizer. Raises `BadInput` without one."""
    tokenizer = model.engine.store.open(model.ref).opened.weights.tokenizer
    if tokenizer is None:
        raise BadInput(
            "The model has no tokenizer.",
            expected="a model that reads text",
            got="none",
            remedy="Measure a model that has a tokenizer.json beside its weights.",
        )
    return tokenizer


def passages(model: Model, n: int) -> Prose:
    """At most `n` pieces and windows of the prose that ships. Raises `BadInput` for a model that cannot read them."""
    need_room(model)
    file, front = resource(*PASSAGES), front_of(model)
    ids = tokenizer_of(model).encode(file.read_text(encoding="utf-8"))
    cut = lambda length: np.array(cut_in_pieces(ids, None, length, n, SEED))
    described = {"text": [file.name], "shares": [1.0], "held_out": [len(ids)]}
    return Prose(front, cut(PIECE), cut(_window(model, front)), file, described)


def held_out_prose(model: Model, streams: tuple[Stream, ...], n: int, folder: str) -> Prose:
    """`n` evenly spaced pieces and windows of the held-out text by its shares; its whole text in a file of `folder`.

    Raises `BadInput` for a model that cannot read it, or for too little text.
    """
    need_room(model)
    front, tokenizer = front_of(model), tokenizer_of(model)
    cut = lambda length: np.concatenate([held_out_of(s, 0, length + 1, n).numpy()[:, 1:] for s in streams])  # 0 comes off again
    text = "\n\n".join(tokenizer.decode(s.held_out.tolist()) for s in streams)
    path = Path(folder) / "held-out prose.txt"
    write_whole(path, text.encode("utf-8"), durable=False)
    described = {
        "text": [s.label for s in streams],
        "shares": [round(s.share, 6) for s in streams],
        "held_out": [len(s.held_out) for s in streams],
    }
    return Prose(front, cut(PIECE), cut(_window(model, front)), path, described)


def _window(model: Model, front: tuple[int, ...]) -> int:
    return min(WINDOW, model.config.n_ctx) - len(front)


def counted_positions(ids: tuple[int, ...], front: int) -> np.ndarray:
    """Positions in the second saying of piece + piece behind `front` tokens, whose token stood exactly once before and whose next
    is known."""
    half = (len(ids) - front) // 2
    at = np.arange(front + half, len(ids) - 1)
    return at[[ids[:i].count(ids[i]) == 1 for i in at]]


def said_twice(model: Model, pieces: np.ndarray, front: tuple[int, ...]) -> SaidTwice:
    """The model on `pieces` [piece, PIECE] of ids, each said twice behind `front`."""
    half, first, once, loss, mass, on_bos = pieces.shape[1], [], [], [], [], []
    for piece in pieces.tolist():
        ids = (*front, *piece, *piece)
        at = counted_positions(ids, len(front))
        if not len(at):
            continue
        losses = model.compute("token_loss", tokens=ids).result
        assert isinstance(losses, TokenLossResult)
        right = Ranks(losses.rank, losses.equal).last == 1
        first.append(float(right[at + 1].mean()))
        once.append(float(right[at - half + 1].mean()))
        loss.append(float(losses.loss[at + 1].mean()))
        if model.config.n_layers:
            patterns = model.compute("attention", tokens=ids).result
            assert isinstance(patterns, AttentionResult)
            mass.append(patterns.values[:, at, at - half + 1].mean(1))
            on_bos.append(patterns.values[:, at, 0].mean(1))
    if not mass:
        nothing = mean_of([])
        return SaidTwice(mean_of(first), mean_of(once), nothing, nothing, None, mean_of(loss))
    best = int(np.mean(mass, axis=0).argmax())
    head = Head(*divmod(best, model.config.n_heads))
    column = lambda rows: mean_of([row[best] for row in rows])
    return SaidTwice(mean_of(first), mean_of(once), column(mass), column(on_bos), head, mean_of(loss))


def resting(model: Model, windows: np.ndarray, pieces: np.ndarray, front: tuple[int, ...]) -> Resting:
    """Where heads look in `windows` [window, pos] of held-out prose, and in `pieces` [piece, pos] said twice, behind `front`."""
    if not model.config.n_layers:
        return Resting(np.zeros((0, model.config.n_heads)), ())
    share = _on_first(model, windows, front)
    twice = _on_first(model, np.concatenate([pieces, pieces], axis=1), front)
    dead = np.argwhere((share >= DEAD) & (twice >= DEAD))
    return Resting(share, tuple(Head(int(i), int(h)) for i, h in dead))


def _on_first(model: Model, texts: np.ndarray, front: tuple[int, ...]) -> np.ndarray:
    """[layer, head]: mean attention on the first token of all later positions of `texts` [text, pos] behind `front`."""
    each = []
    for text in texts.tolist():
        patterns = model.compute("attention", tokens=(*front, *text)).result
        assert isinstance(patterns, AttentionResult)
        each.append(patterns.values[:, 1:, 0].mean(1))
    return np.mean(each, axis=0).reshape(model.config.n_layers, model.config.n_heads)


def in_context(model: Model, text: Path, control: str | None, texts: int = PIECES) -> tuple[Mean, Mean]:
    """(score, score minus the control's) on a text file, nats; `control`: the source of a model without layers.

    Pieces are as long as the model's context, `CONTEXT` tokens at most. The second is NaN without a control.
    """
    chosen = {"on": "file", "text": TextRef(str(text)), "texts": texts, "length": min(CONTEXT, model.config.n_ctx)}
    control_ref = {} if control is None else {"control": SeriesRef(control)}
    result = model.compute("in_context", set={**chosen, **control_ref}).result
    assert isinstance(result, InContextResult)
    return mean_of(result.scores), mean_of(result.scores - result.control_scores)


def words_split(model: Model, text: Path) -> Mean:
    """Share of the words of a text, each as often as it occurs, whose letters are in several tokens; words of letters alone."""
    tokenized = model.tokenized(text.read_text(encoding="utf-8"), bos=False, special=False)
    letters = np.zeros(len(tokenized.words), dtype=int)  # tokens of each word that have letters
    for token in tokenized.tokens:
        if token.word is not None and any(map(str.isalpha, token.piece)):
            letters[token.word] += 1
    whole = [word.strip(_MARKS).isalpha() for word in tokenized.words]
    return mean_of((letters[whole] > 1).astype(float))


_MARKS = ".,;:!?\"'“”‘’()-–—·↵"  # beside a word, and no part of it


def temporary() -> tempfile.TemporaryDirectory[str]:
    """A folder for `held_out_prose`."""
    return tempfile.TemporaryDirectory(prefix="circuitlab-")
