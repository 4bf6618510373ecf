"""What the words of a step name in an open model: its prompt, tokens, a target, places of the prompt."""

from __future__ import annotations

from circuitlab.analysis.behaviour.samples import fit_to_context, repeated_random
from circuitlab.counting import number_of
from circuitlab.engine.store import OpenModel
from circuitlab.errors import BadInput, printable, quoted
from circuitlab.model.subject import Target
from circuitlab.model.text.reading import Front
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import bos_of
from circuitlab.story.setup import Direction, Encoded, Occurrence, Random, Setup, Token, Where


def prompt_of(setup: Setup, otherwise: str, model: OpenModel) -> tuple[str, tuple[int, ...], tuple[bool, str]]:
    """(text, ids, (whether they begin with BOS, or with which other special token)) of a setup's prompt; `otherwise`: its text
    where it says none.

    Raises `BadInput`.
    """
    weights, prompt = model.opened.weights, otherwise if setup.prompt is None else setup.prompt
    config, tokenizer = weights.config, weights.tokenizer
    first = None if tokenizer is None else tokenizer.bos
    text = ""
    if isinstance(prompt, Random):
        tokens = _random_ids(prompt, model)
    elif isinstance(prompt, tuple):
        tokens = prompt
    elif isinstance(prompt, Encoded):
        text, tokens = prompt.text, prompt.ids
    elif tokenizer is None:
        raise BadInput(
            "The model has no tokenizer.",
            expected="tokens = [...] in the step",
            got=printable(prompt, 60),
            remedy="Give token ids instead of text, or open a model with a tokenizer.",
        )
    else:
        bos = setup.front or (config.prepend_bos if setup.bos is None else setup.bos)
        text, tokens = prompt, tokenizer.prompt(prompt, config.n_ctx, bos, setup.special is not False)
    if len(tokens) > config.n_ctx or any(t >= config.d_vocab for t in tokens):
        expected = f"at most {number_of(config.n_ctx, 'token')}, ids below {config.d_vocab}"
        raise BadInput(
            f"The prompt does not fit {model.ref.name}.",
            expected=expected,
            got=number_of(len(tokens), "token"),
            remedy="Shorten the prompt, or choose another model.",
        )
    if setup.front and tokenizer is not None:
        return text, tokens, tokenizer.chosen_front(setup.front)
    bos = bool(tokens) and tokens[0] == first if setup.bos is None else setup.bos and first is not None
    return text, tokens, (bos, "")


def special_of(setup: Setup, front: Front, model: OpenModel) -> bool:
    """Whether spellings of special tokens in a setup's prompt are read as these: true unless it says otherwise, or, where it says
    nothing, its ids are those of the text as letters, as all sessions had them that were saved before there was a word for it.
    """
    prompt, tokenizer = setup.prompt, model.opened.weights.tokenizer
    if setup.special is not None or not isinstance(prompt, Encoded) or tokenizer is None or not tokenizer.spells(prompt.text):
        return setup.special is not False
    try:
        ids = {special: _encoded(tokenizer, prompt, front, special) for special in (True, False)}
    except BadInput:
        return True
    return ids[True] == prompt.ids or ids[False] != prompt.ids


def _encoded(tokenizer: Tokenizer, prompt: Encoded, front: Front, special: bool) -> tuple[int, ...]:
    return tokenizer.encode(tokenizer.long_enough(prompt.text, len(prompt.ids), special), front, special)


def _random_ids(prompt: Random, model: OpenModel) -> tuple[int, ...]:
    weights = model.opened.weights
    fit = fit_to_context(weights.config, prompt.block, prompt.repeats)
    if fit is None:
        expected, got = f"room for {prompt.block} × {prompt.repeats} tokens", f"a context of {weights.config.n_ctx}"
        raise BadInput(
            f"The prompt does not fit {model.ref.name}.",
            expected=expected,
            got=got,
            remedy="Shorten the prompt, or choose another model.",
        )
    return tuple(repeated_random(weights.config, bos_of(weights), *fit, 1, prompt.seed)[0].tolist())


def token_of(token: Token | None, model: OpenModel) -> int:
    """The id of a token, which may be named by its text. Raises `BadInput` where the model does not have it."""
    tokenizer, vocabulary = model.opened.weights.tokenizer, model.opened.weights.config.d_vocab
    if isinstance(token, int):
        if token < vocabulary:
            return token
        raise BadInput(
            f"{model.ref.name} has no token {token}.",
            expected=f"an id below {vocabulary}",
            got=str(token),
            remedy="Choose an id of the vocabulary.",
        )
    token_id = None if tokenizer is None or token is None else tokenizer.find(token)
    if token_id is None:
        shown = printable(token, 60)
        raise BadInput(
            f"‘{shown}’ is not one token of {model.ref.name}.",
            expected="the text of one token",
            got=shown,
            remedy="Write one token as the model reads it, with the space before it, or its id.",
        )
    return token_id


def no_prompt(place: str) -> BadInput:
    """The error of a place that is named where there is no prompt for it to be in."""
    return BadInput(
        "A place in the prompt is named, and there is no prompt.",
        expected="the text or the tokens that the place is in",
        got=f"{place} of no prompt",
        remedy="Type some text first, on the command line with --text or --tokens, or name no place.",
    )


def position_of(where: Where | None, model: OpenModel, tokens: tuple[int, ...], strict: bool) -> int | None:
    """The position in a prompt, None where none is named, or there is none of that name.

    `strict`: then raises `BadInput`, which says how often a text occurs.
    """
    if where is None or isinstance(where, tuple):
        return None
    if strict and not tokens:
        raise no_prompt(quoted(where.text) if isinstance(where, Occurrence) else f"position {quoted(where)}")
    if isinstance(where, Occurrence):
        places = _occurrences(where.text, model, tokens)
        at = where.occurrence - 1 if where.occurrence > 0 else where.occurrence
        expected = f"occurrence 1 to {len(places)}" if places else "a text of whole tokens that occurs in it"
        got = f"occurrence {quoted(where.occurrence)} of {quoted(where.text)}" if places else quoted(where.text)
    else:
        places, at = range(len(tokens)), where
        expected, got = f"0 to {len(tokens) - 1}", f"position {quoted(where)}"
    if -len(places) <= at < len(places):
        return places[at]
    if strict:
        remedy = "Count from 0 (from −1 at the end), or name a text that occurs."
        raise BadInput("There is no such place in the prompt.", expected=expected, got=got, remedy=remedy)
    return None


def target_of(target: tuple[Token, ...] | Direction, model: OpenModel) -> Target:
    """What a step measures: tokens, or a direction of the model's own width. Raises `BadInput`."""
    if not isinstance(target, Direction):
        return Target(tuple(token_of(token, model) for token in target))
    d_model = model.opened.weights.config.d_model
    if len(target.values) != d_model:
        expected = f"{number_of(d_model, 'number')}, d_model of {model.ref.name}"
        raise BadInput(
            "The target direction does not fit.",
            expected=expected,
            got=number_of(len(target.values), "number"),
            remedy="Give a direction of that model's own width, or choose a token as the target.",
        )
    return Target(direction=target.values)


def _occurrences(text: str, model: OpenModel, tokens: tuple[int, ...]) -> list[int]:
    """The position of the last token of a text, for each time that its tokens occur in the prompt."""
    tokenizer = model.opened.weights.tokenizer
    if tokenizer is None:
        raise BadInput(
            "The model has no tokenizer.",
            expected="positions as numbers",
            got=printable(text),
            remedy="Give token ids instead of text, or open a model with a tokenizer.",
        )
    for special in (True, False):  # of a prompt in which spellings are letters, the letters
        sought = tokenizer.encode(tokenizer.long_enough(text, len(tokens), special), special=special)
        n = len(sought)
        if result := [i + n - 1 for i in range(len(tokens) - n + 1) if n and tokens[i : i + n] == sought]:
            return result
    return []
