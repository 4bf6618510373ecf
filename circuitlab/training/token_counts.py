"""What a model was trained on, counted: its most frequent tokens, how many words are split, what the filter of tables took out.

    share of a token   Σ over sources of  share of the source · count in its training part / its tokens
    word               a run of letters in held-out text, with the space before it; split: of several tokens

Tokens that come from tables (names of characters, say) would be seen here before they are seen in a head's skip-trigrams.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from circuitlab.counting import number_of
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import Source, Stream, checked_bytes
from circuitlab.training.files import write_whole
from circuitlab.training.tables import without_tables

HEADING = "## Tokens"
MOST_FREQUENT, WIDTH = 200, 130


def shares_of(streams: Iterable[Stream], n_vocab: int) -> np.ndarray:
    """[n_vocab]: how often training reads each token of the text, without repeats that it adds; sums to the shares' sum."""
    return sum((s.share * np.bincount(s.train, minlength=n_vocab) / max(1, len(s.train)) for s in streams), np.zeros(n_vocab))


def words_split(tokenizer: Tokenizer, ids: np.ndarray) -> tuple[int, int]:
    """(words of several tokens, words) in ids [pos]."""
    used, of = np.unique(ids, return_inverse=True)
    texts = [tokenizer.decode((int(i),)) for i in used]
    letters = np.array([text.removeprefix(" ").isalpha() for text in texts])[of]
    begins = letters & np.array([text.startswith(" ") for text in texts])[of]
    follows = letters & ~begins & np.concatenate([[False], letters[:-1]])  # letters straight after letters
    starts = letters & ~follows
    first_of_several = starts[:-1] & follows[1:]
    return int(first_of_several.sum()), int(starts.sum())


def lines_in_tables(sources: Iterable[Source]) -> int:
    """Lines of installed code that `tables.without_tables` leaves out."""
    read = lambda source, path: checked_bytes(source, path).decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    return sum(without_tables(read(source, path))[1] for source in sources if source.installed for path in source.files)


def section(streams: tuple[Stream, ...], tokenizer: Tokenizer, n_filtered: int | None = None) -> str:
    """The section of a card. `n_filtered`: lines of tables that were left out, None where no source is filtered."""
    shares = shares_of(streams, tokenizer.n_tokens)
    best = np.argsort(-shares, kind="stable")[:MOST_FREQUENT]
    split = []
    for stream in streams:
        several, words = words_split(tokenizer, stream.held_out)
        split.append(f"{stream.label} {several / max(1, words):.1%}")
    words = [
        f"Words of held-out text that are more than one token: {', '.join(split)}.",
        "" if n_filtered is None else f"Of the code, {number_of(n_filtered, 'line')} in long tables were left out.",
        f"The {len(best)} most frequent tokens, {shares[best].sum() / max(shares.sum(), 1e-12):.0%} of the text:",
    ]
    listed = " ".join(f"`{_shown(tokenizer.decode((int(i),)))}`" for i in best)
    wrap = lambda text: textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join([HEADING, "", wrap(" ".join(filter(None, words))), "", wrap(listed), ""])


def _shown(text: str) -> str:
    """A token as it can stand in a line of Markdown: spaces and ends of lines by marks, no back quote."""
    return text.replace(" ", "·").replace("\n", "↵").replace("\t", "→").replace("`", "ˋ")


def describe_tokens(folder: Path, words: str) -> None:
    """Write the section into the folder's `card.md`, in place of an earlier one or before *Training*. Raises `BadMachine`."""
    card = folder / "card.md"
    text = card.read_text(encoding="utf-8") if card.is_file() else f"# {folder.name}\n"
    before, result, rest = text.partition(HEADING)
    if result:
        at = rest.find("\n## ")
        after = rest[at + 1 :] if at >= 0 else ""
    else:
        before, training, rest = text.partition("## Training")
        after = training + rest
    write_whole(card, f"{before.rstrip()}\n\n{words}\n{after}".rstrip().encode() + b"\n")
