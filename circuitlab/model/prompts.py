"""A prompt set: a text file with one prompt a line, over which analyses give mean and spread.

    prompt ⇥ answer ⇥ other answer ⇥ other prompt ⇥ source

separated by tabs; the answers may be left out (the target is then the token that follows, or the model's own). `\n`, `\t`
and `\\` stand for a newline, a tab and a backslash; spaces count; spellings of special tokens are letters; empty lines and
lines that begin with # are skipped; a line ends in a newline, with or without a carriage return. The target is the answer's
first token, or that minus the first token of the other one. Tokens with which both answers begin, as the space of " 0" and " 1"
where digits are tokens of their own, decide nothing: they move to the end of the prompt. The other prompt is what is patched
from. The source is the part of the prompt that the answer follows from, such as the word that it translates; where none is
given, it is where the answer itself stood before.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from circuitlab.counting import number_of
from circuitlab.errors import BadInput, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Target
from circuitlab.model.text.tokenizer import Tokenizer

MOST = 2**18  # prompts of a set: they are held in memory together
_ESCAPES = {"\\n": "\n", "\\t": "\t", "\\\\": "\\"}


@dataclass(frozen=True)
class Prompt:
    """One line: its text, its tokens (with BOS where the model has one) and its target.

    `longer`: an answer has more tokens than the first, which alone is measured. `other`: the other prompt's tokens, () for none.
    `source`: positions of the line's source, () for none.
    `moved`: so many tokens at the end of text, tokens and `other` are those with which both answers begin.
    """

    text: str
    tokens: tuple[int, ...]
    target: Target
    longer: bool = False
    other: tuple[int, ...] = ()
    moved: int = 0
    source: tuple[int, ...] = ()


def lines_of(text: str) -> list[tuple[int, tuple[str, ...]]]:
    """(line number from 1, prompt and answers) of every line that is not skipped. Raises `BadInput` for more than five fields,
    and for more than `MOST` prompts."""
    lines = []
    # not splitlines(): a form feed or a line separator inside a prompt is part of it
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        line = line.removesuffix("\r")
        if not line.strip() or line.startswith("#"):
            continue
        fields = tuple(re.sub(r"\\[nt\\]", lambda m: _ESCAPES[m[0]], part) for part in line.split("\t"))
        if len(fields) > 5:
            expected = "prompt, answer, other answer, other prompt, source"
            raise BadInput(
                f"Line {number} of a prompt set has too many fields.",
                expected=expected,
                got=line[:80],
                remedy="Correct the line; fields stand between tabs.",
            )
        if len(lines) == MOST:
            what, remedy = "A prompt set has too many prompts.", "Divide the file."
            raise BadInput(what, expected=f"at most {number_of(MOST, 'prompt')}", got="more", remedy=remedy)
        lines.append((number, fields))
    return lines


def _tokens(
    text: str, number: int, name: str, tokenizer: Tokenizer, config: ModelConfig, more: tuple[int, ...]
) -> tuple[int, ...]:
    """The tokens of a prompt and `more` behind them. Raises `BadInput` for none, and for more than the context."""
    head = tokenizer.long_enough(text, config.n_ctx)
    tokens = tokenizer.encode(head)
    if tokenizer.bos is not None and config.prepend_bos:
        tokens = (tokenizer.bos, *tokens)
    tokens = (*tokens, *more)
    if not 0 < len(tokens) <= config.n_ctx:
        expected = f"1..{number_of(config.n_ctx, 'token')}"
        raise BadInput(
            f"Line {number} of {name} does not fit the model.",
            expected=expected,
            got=f"{len(tokens)}{' or more' if len(head) < len(text) else ''}",
            remedy="Correct the line; fields stand between tabs.",
        )
    return tokens


def read_prompts(
    text: str, name: str, tokenizer: Tokenizer | None, config: ModelConfig, tick: Callable[[int, int], None] = lambda i, n: None
) -> tuple[Prompt, ...]:
    """The prompts of a file's text; `tick(i, n)` before each. Raises `BadInput` with the line that does not fit the model."""
    if tokenizer is None:
        raise BadInput(
            "The model has no tokenizer.",
            expected="a model that reads text",
            got=name,
            remedy="Open a model that has a tokenizer.json beside its weights.",
        )
    prompts, lines = list[Prompt](), lines_of(text)
    for i, (number, fields) in enumerate(lines):
        tick(i, len(lines))
        prompts.append(read_prompt(number, fields, name, tokenizer, config))
    if not prompts:
        raise BadInput(
            f"{name} holds no prompt.",
            expected="one prompt a line",
            got="none",
            remedy="Correct the line; fields stand between tabs.",
        )
    return tuple(prompts)


def read_prompt(number: int, fields: tuple[str, ...], name: str, tokenizer: Tokenizer, config: ModelConfig) -> Prompt:
    """One line, as `lines_of` gives it. Raises `BadInput` where it does not fit the model."""
    prompt, *rest = fields
    answers, (other_prompt, source) = rest[:2], (*rest[2:], "", "")[:2]
    ids = [tokenizer.encode(answer) for answer in answers if answer]
    if not all(ids) or (any(answers[1:]) and not answers[0]):
        raise BadInput(
            f"An answer in line {number} of {name} has no token.",
            expected="an answer",
            got=quoted(answers),
            remedy="Correct the line; fields stand between tabs.",
        )
    both = _common_beginning(*ids) if len(ids) == 2 else ()
    if any(len(one) == len(both) for one in ids):
        same = "are the same" if ids[0] == ids[1] else "do not differ: one is the beginning of the other"
        raise BadInput(
            f"The answers in line {number} of {name} {same}.",
            expected="two that differ in a token",
            got=quoted(answers),
            remedy="Correct the line; fields stand between tabs.",
        )
    tokens = _tokens(prompt, number, name, tokenizer, config, both)
    other = _tokens(other_prompt, number, name, tokenizer, config, both) if other_prompt else ()
    target = Target(tuple(one[len(both)] for one in ids))
    longer = any(len(one) > len(both) + 1 for one in ids)
    text = prompt + tokenizer.decode(both) if both else prompt
    own = tokens[: len(tokens) - len(both)]
    places = _places(source, prompt, own, number, name, tokenizer) if source else ()
    return Prompt(text, tokens, target, longer, other, len(both), places)


def _places(source: str, prompt: str, tokens: tuple[int, ...], number: int, name: str, tokenizer: Tokenizer) -> tuple[int, ...]:
    """The positions of the last place in a prompt where `source` stands; a token that has a part of it is one of them."""
    at = prompt.rfind(source)
    if at < 0:
        raise BadInput(
            f"The source in line {number} of {name} is not in its prompt.",
            expected="a part of the prompt",
            got=quoted(source),
            remedy="Correct the line; fields stand between tabs.",
        )
    front = tokens[: len(tokens) - len(tokenizer.encode(prompt))]  # BOS
    before, through = ((*front, *tokenizer.encode(prompt[:end])) for end in (at, at + len(source)))
    first, last = (len(_common_beginning(part, tokens)) for part in (before, through))
    return tuple(range(first, last + (last < len(through))))


def _common_beginning(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """The tokens with which both begin."""
    same = [a == b for a, b in zip(first, second, strict=False)]
    return first[: [*same, False].index(False)]
