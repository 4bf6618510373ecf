"""Values that figures derive from answers are computed once and stay the same objects, so that they are not drawn again.

There is one memo, weak on every object in its keys: when one of these is freed, the values derived from it go too. A bare `id`
as a key would be wrong: the id of a freed object is reused by the next one, which would then get the first one's numbers.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from circuitlab.engine.request import Answer

T = TypeVar("T")
MOST = 256  # groups of objects: a value derived from two or more may hold one of them, which then is never freed
_LOCK = threading.RLock()
_GROUPS: OrderedDict[tuple[int, ...], tuple[tuple[weakref.ref[Any], ...], dict[Hashable, Any]]] = OrderedDict()


def memo(of: object, key: Hashable, make: Callable[[], T]) -> T:
    """`make()`, called once for `of` and `key`.

    `of`: the object that the value is derived from, or a tuple of all of them; an `Answer` stands for its result, None for an
    absent object. `key` distinguishes several values of the same objects, and contains whatever else `make` reads.
    """
    objects = [one.result if isinstance(one, Answer) else one for one in (of if isinstance(of, tuple) else (of,))]
    ids = tuple(map(id, objects))
    with _LOCK:
        group = _GROUPS.get(ids)
        if group is None or any(ref() is None for ref in group[0]):
            pop = _GROUPS.pop  # bound here: at exit the names of a module are cleared before the weak references
            forget = lambda _: pop(ids, None)
            group = _GROUPS[ids] = tuple(weakref.ref(one, forget) for one in objects if one is not None), {}
        _GROUPS.move_to_end(ids)
        values = group[1]
        if key not in values:
            values[key] = make()
        while len(_GROUPS) > MOST:
            _GROUPS.popitem(last=False)
        return values[key]
