"""Interventions as text, in an open model and on a prompt: what `state/edit_syntax.py` leaves to them.

Other prompts are encoded as the prompt is, positions by text or from the end are found in it, an alignment that is left out is
worked out, and tokens that stand for a direction become columns of W_U under the conventions of the question.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import torch

from circuitlab.analysis.interventions.alignment import alignment_of
from circuitlab.engine.store import OpenModel
from circuitlab.errors import BadInput, UsageError, quoted
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions
from circuitlab.model.text.reading import Reading
from circuitlab.state.edit_syntax import EXAMPLE, EditText, Place, SiteText, plain_edit, read_edits
from circuitlab.story.named_in_model import position_of, token_of
from circuitlab.story.setup import Occurrence

Edit = Intervention | EditText | str  # typed, read, or as text; of one text several, with ; between them


def edits_in_model(
    edits: Iterable[Edit], model: OpenModel, tokens: tuple[int, ...], reading: Reading, conventions: Conventions
) -> tuple[Intervention, ...]:
    """Interventions for a prompt. `reading`: how the texts of other prompts become ids.

    Raises `UsageError` for words that cannot be read, `BadInput` for what is not in the model or the prompt.
    """
    result: list[Intervention] = []
    for edit in edits:
        if isinstance(edit, Intervention):
            result.append(edit)
            continue
        if not isinstance(edit, (str, EditText)):
            raise UsageError(
                "An intervention cannot be read.", expected="a text, or an Intervention", got=quoted(edit), remedy=EXAMPLE
            )
        written = read_edits(edit) if isinstance(edit, str) else (edit,)
        result += (_in_model(one, model, tokens, reading, conventions) for one in written)
    return tuple(result)


def _in_model(
    edit: EditText, model: OpenModel, tokens: tuple[int, ...], reading: Reading, conventions: Conventions
) -> Intervention:
    source = _prompt(edit.source, model, reading) if isinstance(edit.source, str) else edit.source
    align = edit.align
    if edit.op == "patch" and align is None:
        same = len(source) == len(tokens)
        align = () if same else tuple(int(a) for a in alignment_of(tokens, source).align)
    value = edit.value
    if value and isinstance(value[0], str):
        value = _direction(tuple(map(str, value)), model, conventions)
    sender = None if edit.path_from is None else _placed(edit.path_from, model, tokens)
    site = _placed(edit.site, model, tokens)
    return plain_edit(replace(edit, site=site, value=value, source=source, align=align, path_from=sender))


def _placed(site: SiteText, model: OpenModel, tokens: tuple[int, ...]) -> SiteText:
    """The site with its positions counted from 0."""
    find = lambda places: tuple(_position(place, model, tokens) for place in places)
    return replace(site, positions=find(site.positions), sources=find(site.sources))


def _position(place: Place, model: OpenModel, tokens: tuple[int, ...]) -> int:
    result = position_of(Occurrence(place) if isinstance(place, str) else place, model, tokens, strict=True)
    assert result is not None
    return result


def _prompt(text: str, model: OpenModel, reading: Reading) -> tuple[int, ...]:
    weights = model.opened.weights
    if weights.tokenizer is None:
        raise BadInput(
            "The model has no tokenizer.", expected="from [0,5,9]", got=quoted(text), remedy="Give token ids instead of text."
        )
    return weights.tokenizer.prompt(text, weights.config.n_ctx, *reading)


def _direction(tokens: tuple[str, ...], model: OpenModel, conventions: Conventions) -> tuple[float, ...]:
    """[d_model]: what W_U reads for a token, or for the first minus the second, with norms folded and centred as asked."""
    ids = [token_of(token, model) for token in tokens]
    columns = model.weights(conventions).unembed().W_U.double().cpu()
    direction = columns[:, ids[0]] - columns[:, ids[1]] if len(ids) == 2 else columns[:, ids[0]]
    return tuple(torch.as_tensor(direction).tolist())
