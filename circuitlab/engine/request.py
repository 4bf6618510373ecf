"""Request and Answer: the only way to ask for numbers and the only form in which they are returned."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic

from circuitlab.analysis.base import Analysis, P, R, SeriesRef, TextRef, find_analysis
from circuitlab.model.subject import Subject


@dataclass(frozen=True)
class Request(Generic[R]):
    """(analysis, parameters, subject). Hashable: the cache key is derived from it and the identity of the weights.

    `Request(bigram, BigramParams(token), subject)`: parameters of another analysis do not pass the type checker, and the answer's
    result is a `BigramResult`.
    """

    analysis: Analysis[Any, R]
    params: Any
    subject: Subject

    if TYPE_CHECKING:

        def __init__(self, analysis: Analysis[P, R], params: P, subject: Subject) -> None: ...

    @classmethod
    def named(cls, name: str, params: Any, subject: Subject) -> Request[Any]:
        """A request by the analysis' registered name. Raises `UsageError` listing the names."""
        return Request[Any](find_analysis(name), params, subject)

    @cached_property
    def asked(self) -> Request[R]:
        """The same request without the hashes of files, which the engine fills in: equal for two identical requests."""
        if not is_dataclass(self.params) or isinstance(self.params, type):
            return self
        plain = {f.name: _unhashed(getattr(self.params, f.name)) for f in fields(self.params) if f.init}
        changed = {name: value for name, value in plain.items() if value != getattr(self.params, name)}
        return replace(self, params=replace(self.params, **changed)) if changed else self


def _unhashed(value: Any) -> Any:
    if isinstance(value, (TextRef, SeriesRef)):
        return replace(value, sha256="")
    return tuple(map(_unhashed, value)) if type(value) is tuple else value


@dataclass(frozen=True)
class Provenance:
    """The origin of an answer, for captions, exports and the record.

    `weights`: the sha256 of the weight file(s), "" until it is known; `reused`: how many positions of the prompt were taken from
    an earlier run (0: none).
    """

    weights: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    threads: int = 1
    device: str = "cpu"
    seconds: float = 0.0
    reused: int = 0


@dataclass(frozen=True, eq=False)
class Answer(Generic[R]):
    """A result with the request that it answers. `complete` is False for partial and cancelled work."""

    request: Request[R]
    result: R
    complete: bool
    provenance: Provenance

    @property
    def fingerprint(self) -> str:
        """A hash of all arrays, equal for bit-equal results."""
        digest = hashlib.sha256()
        for name, array in sorted(self.result.arrays().items()):
            digest.update(name.encode() + str(array.dtype).encode() + str(array.shape).encode())
            digest.update(array.tobytes())
        return digest.hexdigest()
