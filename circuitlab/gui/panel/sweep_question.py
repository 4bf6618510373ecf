"""What a sweep would ask in place of a panel: its questions of the open model, or why no sweep can ask them."""

from __future__ import annotations

from circuitlab.errors import BadInput, CircuitLabError
from circuitlab.figures.contracts.panel import Panel, Why
from circuitlab.gui.work.app_context import AppContext
from circuitlab.sweep.declaring import Asked, asked_of


def sweep_question(panel: Panel, context: AppContext) -> Asked:
    """What a panel asks now. Raises `BadInput` with the reason where a sweep cannot ask that."""
    state = context.document.state
    if context.engine.store.peek(state.model) is None:
        raise BadInput("The model is not open yet.", remedy="Wait until it is.")
    requests = panel.requests(state, context.facts(state.model))
    if isinstance(requests, Why):
        raise BadInput(requests.text, remedy="Choose another panel.")
    return asked_of(panel.title, state, requests)


def why_no_sweep(panel: Panel, context: AppContext) -> str:
    """The reason in a sentence, "" where a sweep can ask what the panel asks."""
    try:
        sweep_question(panel, context)
    except CircuitLabError as error:
        return error.what
    return ""
