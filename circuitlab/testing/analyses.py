"""What is asked of every analysis: it answers or refuses, describes its arrays, gives the same numbers again, and is stored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from circuitlab.analysis.base import NullContext, Result, find_analysis
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import read_stored, stored_bytes
from circuitlab.errors import CircuitLabError, Refused
from circuitlab.model.intervention import Intervention
from circuitlab.model.subject import Conventions, ModelRef, Subject
from circuitlab.model.weights import Weights
from circuitlab.testing.arrays import check_axes, check_columns
from circuitlab.testing.models import CONFIGS, directory

TOKENS = (0, 5, 9, 5, 7, 5, 9, 200, 5)
PROMPTS = ((1,), (1, 2), tuple([3] * 48))  # one token, two, a full context
KINDS = ("attention-only", "llama", "both-norms-capped", "odd")
Edits = tuple[Intervention, ...]


class Bench:
    """An engine of its own on one model. Called with an analysis' name it gives the result."""

    def __init__(self, path: Path) -> None:
        self.engine, self.ref = Engine(ModelStore()), ModelRef(f"file:{path}")

    @classmethod
    def on(cls, path: Path, config: str = "attention-only", **changes: Any) -> Bench:
        """On a new random model at `path`, of one of `CONFIGS`."""
        return cls(directory(path, CONFIGS[config], **changes))

    @property
    def weights(self) -> Weights:
        """The weights as they were read."""
        return self.engine.store.open(self.ref).opened.weights

    def answer(
        self, name: str, params: object = None, tokens: tuple[int, ...] = TOKENS, edits: Edits = (), dtype: str = "float32"
    ) -> Answer[Any]:
        """The answer of an analysis on a prompt; `params` None: the defaults. Raises what the engine raises."""
        params = find_analysis(name).params() if params is None else params
        subject = Subject(self.ref, tokens, edits, Conventions(dtype=dtype))  # type: ignore[arg-type]
        return self.engine.answer(Request.named(name, params, subject))

    def result(self, name: str, params: object = None, tokens: tuple[int, ...] = TOKENS, edits: Edits = (), **more: str) -> Any:
        """The result of `answer`."""
        return self.answer(name, params, tokens, edits, **more).result

    __call__ = result


def need(holds: object, *words: object) -> None:
    """Raise `AssertionError` with these words where something does not hold."""
    if not holds:
        raise AssertionError(" ".join(map(str, words)))


def check_analysis(name: str, folder: Path, params: object = None, edits: Edits = ()) -> None:
    """All of what follows, on small models that are written below `folder`."""
    for kind in KINDS:
        for i, tokens in enumerate(PROMPTS):
            check_answer(Bench.on(folder / f"{kind}-{i}", kind, tokenizer=False), name, tokens, params, edits)
    check_afresh(Bench.on(folder / "afresh").ref, name, params, edits)
    with_layers, without = Bench.on(folder / "stored"), Bench.on(folder / "no-layers", n_layers=0)
    try:
        check_stored(with_layers.answer(name, params, edits=edits))
        without.answer(name, params)
    except CircuitLabError as error:
        need(str(error).strip(), name, "refuses without a word")


def check_answer(bench: Bench, name: str, tokens: tuple[int, ...], params: object = None, edits: Edits = ()) -> Result | None:
    """It answers with a table, conventions and arrays that nobody can change; or it refuses, as its `refuse` says: None."""
    analysis = find_analysis(name)
    params = analysis.params() if params is None else params
    if reason := analysis.refuse(bench.weights.config, params):
        try:
            bench.result(name, params, tokens)
        except Refused as refused:
            need(reason[1:] in refused.what, name, "refuses as", refused.what, "and says", reason)
            return None
        raise AssertionError(f"{name} answers what it says that it refuses: {reason}")
    found = bench.result(name, params, tokens, edits)
    need(found.table().n_rows > 0, name, "has an empty table")
    need(found.conventions, name, "does not say its conventions: inputs.convention_words()")
    need(all(not a.flags.writeable for a in found.arrays().values()), name, "gives arrays that can be written to")
    check_axes(found)
    check_columns(found)
    return found


def check_afresh(ref: ModelRef, name: str, params: object = None, edits: Edits = ()) -> None:
    """The same request computed twice, afresh and after other requests, has the same bits."""
    analysis, prints = find_analysis(name), set[str]()
    params = analysis.params() if params is None else params
    for _ in range(2):
        engine = Engine(ModelStore())
        if analysis.refuse(engine.store.open(ref).opened.weights.config, params):
            return
        engine.answer(Request.named("token_loss", find_analysis("token_loss").params(), Subject(ref, (4, 5, 6))))
        prints.add(engine.answer(Request.named(name, params, Subject(ref, TOKENS, edits)), NullContext(), fresh=True).fingerprint)
    need(len(prints) == 1, name, "gives other numbers when it is computed again")


def check_stored(answer: Answer[Result]) -> None:
    """It comes back bit for bit from the bytes that a session file carries."""
    ref, name = answer.request.subject.model, answer.request.analysis.name
    back = read_stored(stored_bytes(answer, {ref: "model"}), lambda _: ref, {})
    need(back.fingerprint == answer.fingerprint, name, "comes back with other numbers")
    need(back.request == answer.request and back.result.remainder == answer.result.remainder, name, "comes back as another")
    need(back.provenance == replace(answer.provenance, stored=True), name, "comes back from elsewhere")


def check_remainder(result: Callable[[], Result], make_wrong: Callable[[], object]) -> None:
    """A decomposition has no remainder but rounding, and a large one once `make_wrong` has spoilt one of its parts.

    `result`: computes it anew, in double precision.
    """
    right = result().remainder
    if right is None:
        raise AssertionError("there is no remainder")
    need(0 <= right.size < 1e-10 * max(1, right.of), "what is left alone has a remainder of", right)
    make_wrong()
    wrong = result().remainder
    need(wrong is not None and wrong.size > 1e-4 * wrong.of > 0, "what was made wrong on purpose does not show:", wrong)
