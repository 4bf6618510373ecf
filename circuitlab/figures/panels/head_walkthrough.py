"""One head, one destination, one source: every step with its numbers in this run, and the head as one tensor product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from circuitlab.analysis.attribution.head_step import HeadStepParams, HeadStepResult, head_step
from circuitlab.analysis.attribution.tensor_identity import TensorIdentityParams, TensorIdentityResult, tensor_identity
from circuitlab.analysis.ordering import descending, rank_in
from circuitlab.counting import number, number_of, probability
from circuitlab.engine.request import Answer, Request
from circuitlab.figures.contracts.common import caption, digits, prompt_of, quoted, texts, token_at, top_level
from circuitlab.figures.contracts.memo import memo
from circuitlab.figures.contracts.panel import Answers, Facts, Panel, Requests, Why, control, register
from circuitlab.figures.contracts.selection_reading import leading_head, selected_edge
from circuitlab.figures.marks import Figure, Hit, RowColumn, Rows, ids
from circuitlab.figures.panels.score_expansion import cell_of
from circuitlab.model.subject import Head
from circuitlab.state.state import State

ENTRIES = 3  # of a vector that are listed
WORDS = 3  # out tokens that are listed


@dataclass(frozen=True)
class StepByStepView:
    """The controls of the steps."""

    page: Literal["steps", "entries", "sources", "A ⊗ W"] = control("steps", label="Page", kind="tabs")


def _earlier(state: State, facts: Facts, head: Head) -> Head | None:
    """The source of the chosen edge, where this head is its destination."""
    edge = selected_edge(state, facts)
    return edge[0] if edge is not None and edge[1] == head and edge[0].layer < head.layer else None


def requests(state: State, facts: Facts) -> Requests | Why:
    """The steps at the selected cell, or the tensor product of the whole head."""
    head = leading_head(state, facts)
    if isinstance(head, Why):
        return head
    if _page(state) == "A ⊗ W":
        return {"identity": Request(tensor_identity, TensorIdentityParams(head, _earlier(state, facts, head)), state.subject)}
    params = HeadStepParams(head, *cell_of(state), target=state.selection.target)
    return {"step": Request(head_step, params, state.subject)}


def _page(state: State) -> str:
    view: StepByStepView = state.view("step_by_step", StepByStepView)
    return view.page


def draw(state: State, facts: Facts, answers: Answers) -> Figure:
    """The page that is open."""
    page = _page(state)
    if page == "A ⊗ W":
        return _identities(answers.of("identity", tensor_identity))
    answer = answers.of("step", head_step)
    result = answer.result
    tokens = prompt_of(answer)
    title = (
        f"{answer.request.params.head} · {token_at(result.destination, tokens, facts)} → {token_at(result.source, tokens, facts)}"
    )
    if page == "entries":
        return Figure(
            ((_entries(answer),),), title, caption(answer, "sorted by q · k: the entries that contribute most to the score")
        )
    if page == "sources":
        return Figure(((_sources(answer, facts),),), title, caption(answer, "a click chooses the source"))
    return Figure(((_steps(facts, answer),),), title, caption(answer))


def _norm(x: np.ndarray) -> str:
    return f"{number(float(np.sqrt((x**2).sum())), '.4g')}"


def _vector(x: np.ndarray) -> str:
    """The length of a vector and its first entries."""
    first_entries = "  ".join(number(v) for v in x[:ENTRIES])
    return f"length {_norm(x)}: {first_entries} …" if len(x) > ENTRIES else f"length {_norm(x)}: {first_entries}"


def _largest(products: np.ndarray) -> str:
    """The largest entries, with their indices."""
    order = descending(products, by_size=True)[:WORDS]
    return ", ".join(f"[{i}] {number(products[i], '.2f')}" for i in order.tolist())


def _raised(facts: Facts, token_ids: np.ndarray, values: np.ndarray) -> str:
    pairs = zip(token_ids.tolist(), values.tolist(), strict=True)
    return ", ".join(f"{quoted(facts.token_text(i))} {number(v, '+.2f')}" for i, v in list(pairs)[:WORDS])


def _lines(result: HeadStepResult, tokens: tuple[int, ...], facts: Facts) -> list[tuple[int, str, str]]:
    """(number, step, this run's numbers), in the order in which it happens."""
    d, s = token_at(result.destination, tokens, facts), token_at(result.source, tokens, facts)
    return [*_scored(result, facts, d, s), *_moved(result, facts, s)]


def _scored(result: HeadStepResult, facts: Facts, d: str, s: str) -> list[tuple[int, str, str]]:
    c, figured = facts.config, lambda value: number(value, ".4g")
    reads = ["its norm"] * (c.norm != "none" and c.norm_placement in ("pre", "both"))
    reads += ["plus position"] * (not np.array_equal(result.read_key, result.read_value))
    read = " ".join(reads) or "as it stands"
    lines = [
        (1, f"x at {d}", _vector(result.x_dest)),
        (1, f"x at {s}", _vector(result.x_source)),
        (2, f"read: {read}", f"length {_norm(result.read_query)} for q, {_norm(result.read_key)} for k"),
        (3, "q = x_d W_Q", _vector(result.q)),
        (3, "k = x_s W_K", _vector(result.k)),
        (4, "q · k by entry", f"{_largest(result.products)} …"),
        (5, "their sum", figured(result.dot)),
        (6, f"× scale {figured(result.scale)}", f"score {figured(result.score)}"),
    ]
    if result.bias:
        further = f"{figured(result.bias)}, score {figured(result.score + result.bias)}"
        lines.append((6, "− slope · distance (ALiBi)", further))
    if not np.isclose(result.softmax_score, result.score + result.bias, rtol=1e-4, atol=1e-4):
        lines.append((6, "cap, interventions", f"score {figured(result.softmax_score)}"))
    return lines


def _moved(result: HeadStepResult, facts: Facts, s: str) -> list[tuple[int, str, str]]:
    n_visible, (rank, equal) = int(result.mask.sum()), rank_in(result.pattern[result.mask], result.attention)
    target = [quoted(facts.token_text(int(i))) for i in result.target_ids if i >= 0]
    target_name = " − ".join(target) or result.target_words
    lines = [
        (7, "mask", f"{n_visible} of {number_of(len(result.mask), 'source')} visible"),
        (
            8,
            "softmax over them",
            f"A = {probability(result.attention)}, the {_ordinal(int(rank))}{f' of {equal} equal' * bool(equal > 1)}",
        ),
        (9, "v = x_s W_V", _vector(result.v)),
        (9, "A · v", f"length {_norm(result.weighted)}"),
        (10, f"z = Σ A v of {n_visible}", _vector(result.z)),
        (11, "z W_O, to the stream", f"length {_norm(result.result)}, from this source {_norm(result.moved)}"),
        (12, "raises", _raised(facts, result.top_ids, result.top)),
        (12, f"from {s} alone", _raised(facts, result.moved_ids, result.moved_top)),
    ]
    return [
        *lines,
        (12, f"on {target_name}", f"{number(result.effect, '+.3f')}, from this source {number(result.effect_moved, '+.3f')}"),
    ]


def _ordinal(n: int) -> str:
    if n == 1:
        return "largest"
    ends = {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th") if n % 100 not in (11, 12, 13) else "th"
    return f"{n}{ends} largest"


def _steps(facts: Facts, answer: Answer[HeadStepResult]) -> Rows:
    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        number, step, text = zip(*_lines(answer.result, prompt_of(answer), facts), strict=True)
        columns = RowColumn("#", np.array(number), digits=0), _words("step", step), _words("this run", text)
        within = [
            number[:i].count(n) for i, n in enumerate(number)
        ]  # so that a step that one run has and the other has not shifts no id
        return columns, ids(np.array(number), np.array(within))

    columns, keys = memo(answer, "steps", make)
    return Rows("steps", columns, keys)


def _words(name: str, values: tuple[str, ...]) -> RowColumn:
    return RowColumn(name, np.array(values, dtype=object))


def _entries(answer: Answer[HeadStepResult]) -> Rows:
    """Every entry of the head's q, k, v and z, the largest products q · k first."""
    result = answer.result

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        order = descending(result.products, by_size=True)
        columns = [RowColumn("entry", order, digits=0)]
        for name, values in (
            ("q", result.q),
            ("k", result.k),
            ("q · k", result.products),
            ("v", result.v),
            ("A · v", result.weighted),
            ("z", result.z),
        ):
            top = top_level(values)
            columns.append(RowColumn(name, values[order], digits=digits(top), map="signed", levels=(-top, top)))
        return tuple(columns), ids(order)

    columns, keys = memo(answer, "entries", make)
    return Rows("entries", columns, keys, ranked=True)


def _sources(answer: Answer[HeadStepResult], facts: Facts) -> Rows:
    """The row of scores that softmax reads, and the row of the pattern."""
    result, tokens = answer.result, prompt_of(answer)

    def make() -> tuple[tuple[RowColumn, ...], np.ndarray]:
        visible = np.flatnonzero(result.mask)
        columns = (
            RowColumn("#", visible, digits=0),
            RowColumn("source", texts(np.array(tokens)[visible], facts), tokens=True),
            RowColumn("score", result.scores[visible], digits=digits(top_level(result.scores))),
            RowColumn("A", result.pattern[visible], digits=4, bar=True, levels=(0.0, 1.0), tip="softmax of the scores"),
        )
        return columns, ids(visible)

    columns, keys = memo(answer, ("sources", tokens), make)
    chosen = tuple(np.flatnonzero(keys[:, 0] == result.source).tolist())
    return Rows("sources", columns, keys, chosen=chosen, searchable=len(keys) > 50)


def _identities(answer: Answer[TensorIdentityResult]) -> Figure:
    """Each reading of the head with its difference from the forward pass."""
    result = answer.result

    def make() -> tuple[RowColumn, ...]:
        pairs = zip(result.difference, result.of, strict=True)
        differences = [f"{number(d, '.1e')} of {number(of, '.3g')}" if np.isfinite(d) else "not computed" for d, of in pairs]
        return (
            RowColumn("reading", np.array(result.names, dtype=object)),
            RowColumn(
                "difference", np.array(differences, dtype=object), tip="largest entry of the difference, and of the head's output"
            ),
            RowColumn("formula", np.array(result.formulas, dtype=object)),
        )

    rows = Rows("identities", memo(answer, "rows", make), memo(answer, "ids", lambda: ids(np.arange(len(result.names)))))
    params = answer.request.params
    after = f" after {params.earlier}" if params.earlier is not None else ""
    reasons = [f"{name}: {reason}" for name, reason in zip(result.names, result.reasons, strict=True) if reason]
    hints = reasons if after else [*reasons[:-1], "composed heads: choose an edge of Composition"]
    return Figure(((rows,),), f"{params.head}{after} · A ⊗ W_OV against the forward pass", caption(answer, *hints))


def pick(state: State, hit: Hit) -> State:
    """A source of the row becomes the selected one."""
    if hit.mark != "sources" or hit.gesture not in ("click", "double-click") or not hit.id:
        return state
    destination = len(state.tokens) - 1 if state.selection.destination is None else state.selection.destination
    return state.select(destination=destination, source=hit.id[0], locked=True)


PANEL = register(
    Panel(
        name="step_by_step",
        title="Step by step",
        view=StepByStepView,
        equation="q = x_d W_Q, k = x_s W_K, v = x_s W_V;  A = softmax(scale · q kᵀ);  z = A v;  z W_O;  head(x) = (A ⊗ W_OV) · x",
        source="Elhage et al. 2021, “Attention heads are independent and additive”, “Attention heads as tensor products”",
        help=(
            "Everything that the leading head computes at the selected destination and source (without a source, at the one most "
            "attended to), in order. Steps with the same number are computed in parallel. x is d_model numbers wide; q, k, v and "
            "z are d_head wide. Entries lists them, largest contributions to the score first; Sources is the row that softmax "
            "reads. A ⊗ W: the head's output computed again with the whole matrix W_OV, moving information between tokens first, "
            "mapping each token first, or as one matrix on the whole prompt: the three are equal, and the difference shown is "
            "rounding. Also: z of all heads concatenated times W_O, against the sum over heads."
        ),
        needs_tokens="Type some text in the Prompt, then hover a token or a cell of Attention.",
        requests=requests,
        draw=draw,
        pick=pick,
        of_heads=True,
        instead="Paths has the direct path, which is all that there is",
        area="right",
        order=140,
    )
)
