"""Carrying a State over to another model: what means the same there is kept, the rest is dropped."""

from __future__ import annotations

import random
from contextlib import suppress
from dataclasses import replace

from circuitlab.engine.store import OpenModel
from circuitlab.errors import BadInput
from circuitlab.model.config import ModelConfig
from circuitlab.model.editor import check_edits
from circuitlab.model.forward import check_tokens
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Head, ModelRef, Target
from circuitlab.model.text.reading import Reading
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.state.cuts import seen
from circuitlab.state.state import Selection, State


def state_on(model: OpenModel, state: State, text: str | None) -> State:
    """`state` on another model with its text, or `text`, tokenized anew and truncated to the new model's context."""
    weights = model.opened.weights
    tokenizer, config = weights.tokenizer, weights.config
    bos = config.prepend_bos and tokenizer is not None and tokenizer.bos is not None
    reading = Reading(bos, state.special)
    words = state.text if text is None else text
    encoded = None if tokenizer is None else _encoded(tokenizer, words, reading, config.n_ctx)
    if text is None and state.draft and tokenizer is not None:  # too long for the model before, perhaps not for this one
        draft = _encoded(tokenizer, state.draft, reading, config.n_ctx)
        encoded = draft if draft is not None and draft[0] == state.draft else encoded
    if encoded is not None:
        words, tokens = encoded
    else:
        # ids typed by hand stay; ids that came from another model's tokenizer would mean nothing here
        ids = () if state.text else tuple(t for t in state.tokens if t < config.d_vocab)[: config.n_ctx]
        words, tokens = "", ids or first_ids(config)
    heads = tuple(h for h in state.selection.heads if h.layer < config.n_layers and h.head < config.n_heads)
    # interventions refer to heads of the model they were made on
    edits = state.edits if state.model == model.ref else ()
    moved = replace(state, model=model.ref, bos=bos, front="", edits=edits, selection=Selection(heads=heads or (Head(0, 0),)))
    return moved.with_text(words, tokens)


def warm_tokenizer(model: OpenModel, text: str) -> None:
    """On a worker thread: encode what `state_for` will encode, so that the tokenizer has it cached."""
    tokenizer = model.opened.weights.tokenizer
    if tokenizer is None:
        return
    for words in ("", text):  # the editor encodes the empty text
        with suppress(BadInput):
            for special in (True, False):
                tokenizer.encode(tokenizer.long_enough(words, model.opened.weights.config.n_ctx, special), special=special)


def _encoded(tokenizer: Tokenizer, text: str, reading: Reading, most: int) -> tuple[str, tuple[int, ...]] | None:
    """A text and its tokens, truncated to `most` tokens; None if the tokenizer cannot encode it."""
    try:
        return tokenizer.cut(text, most, *reading)
    except BadInput:
        return None


def first_ids(config: ModelConfig) -> tuple[int, ...]:
    """A first prompt for a model without a tokenizer: a few random ids, the same at every start, repeated once."""
    rng = random.Random(0)
    half = [rng.randrange(config.d_vocab) for _ in range(max(1, min(12, config.n_ctx // 2)))]
    return tuple(half + half)[: config.n_ctx]


def one_series(a: ModelRef, b: ModelRef) -> bool:
    """Whether two references are checkpoints of one training run, with the same shape, vocabulary and source."""
    return replace(a, checkpoint=None) == replace(b, checkpoint=None)


def state_for(model: OpenModel, state: State, before: OpenModel | None, shown: State) -> State:
    """`state`, which has `model` instead of the model of `shown`, with everything that still has a meaning there.

    `before` is the opened model of `shown`, None if it has been closed to free memory. Tokens stay if the new tokenizer gives
    the same ones for the text, or if they were typed as ids for this model; the selection and the interventions then stay as far
    as the new shape has them. Otherwise the text is encoded anew, and positions and interventions are dropped.
    """
    if one_series(model.ref, shown.model):
        return state
    if not _same_tokens(model, state, before, shown):
        return state_on(model, replace(state, model=shown.model), None)
    config, n = model.opened.weights.config, len(state.tokens)
    edits = tuple((edit, on) for edit, on in state.edits if _possible(config, edit, n))
    return replace(state, edits=edits, selection=_selection(config, state.selection).clamped(n))


def _same_tokens(model: OpenModel, state: State, before: OpenModel | None, shown: State) -> bool:
    """Whether the tokens of `state` mean the same on the new model: the encoding of its text, or ids typed for it."""
    tokenizer = model.opened.weights.tokenizer
    try:
        check_tokens(model.opened.weights.config, state.tokens)
    except BadInput:
        return False
    if state.bos and (tokenizer is None or tokenizer.bos is None):
        return False
    if state.front and (tokenizer is None or state.front not in tokenizer.special_tokens.values()):
        return False
    if state.text:
        encoded = None if tokenizer is None else _encoded(tokenizer, state.text, state.reading, len(state.tokens) + 1)
        return encoded is not None and encoded[1] == state.tokens
    if state.tokens != shown.tokens:  # typed together with the choice of this model
        return True
    if before is None:  # the old tokenizer is gone, and with it the meaning of the ids
        return False
    old_tokenizer = before.opened.weights.tokenizer
    if tokenizer is None or old_tokenizer is None:
        return tokenizer is old_tokenizer
    return all(tokenizer.display(t) == old_tokenizer.display(t) for t in state.tokens)


def dropped_edits(before: State, after: State) -> tuple[tuple[Intervention, bool], ...]:
    """The interventions of one state that another lacks, with their switches."""
    kept = {edit for edit, _ in after.edits}
    return tuple((edit, on) for edit, on in before.edits if edit not in kept)


def put_back(config: ModelConfig, before: State, state: State) -> State:
    """`state`, on a model of this configuration, with those interventions of `before` that it lacks and can have.

    What names positions, or tokens to patch from, means the same only where the two have the same tokens.
    """
    same_tokens = before.tokens == state.tokens and before.text == state.text
    lacking = dropped_edits(before, state)
    fit = ((edit, on) for edit, on in lacking if same_tokens or not _of_tokens(edit))
    possible = ((edit, on) for edit, on in fit if _possible(config, edit, len(state.tokens)))
    return seen(replace(state, edits=(*state.edits, *possible))) if lacking else state


def _of_tokens(edit: Intervention) -> bool:
    """Whether an intervention names positions of its prompt, or tokens."""
    sites = (edit.site, *([] if edit.path_from is None else [edit.path_from]))
    return bool(edit.source or edit.align or any(site.positions or site.sources for site in sites))


def _possible(config: ModelConfig, edit: Intervention, n: int) -> bool:
    try:
        check_edits(config, (edit,), n)
    except BadInput:
        return False
    return True


def without_missing(config: ModelConfig, state: State, shown: Selection) -> State:
    """`state` without selected heads, tokens and positions that the model or the prompt does not have.

    The same object if there are none. If the model has none of its heads, the heads of `shown` stay selected.
    """
    selection = _selection(config, state.selection, shown).clamped(len(state.tokens))
    return state if selection == state.selection else replace(state, selection=selection)


def _selection(config: ModelConfig, chosen: Selection, shown: Selection | None = None) -> Selection:
    """The selection without heads, tokens and directions that the model does not have."""
    has = lambda h: 0 <= h.layer < config.n_layers and 0 <= h.head < config.n_heads
    target = chosen.target
    if any(not 0 <= t < config.d_vocab_out for t in target.tokens) or len(target.direction) not in (0, config.d_model):
        target = Target()
    heads = tuple(filter(has, chosen.heads)) or tuple(filter(has, () if shown is None else shown.heads))
    return replace(
        chosen,
        heads=heads or (Head(0, 0),),
        token=chosen.token if chosen.token is not None and 0 <= chosen.token < config.d_vocab else None,
        edge=chosen.edge if chosen.edge is not None and all(map(has, chosen.edge)) else None,
        target=target,
    )
