"""What figures derive from answers is computed once and stays the same object, so that it is not drawn again.

One memo for all of them, weak on every object that it is keyed by: when one of these dies, what was derived from it goes too. A
bare `id` would not do: that of an object which nobody holds is given to the next one, and with it the first one's numbers.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from circuitlab.engine.request import Answer

T = TypeVar("T")
MOST = 256  # groups of objects: a value derived from two or more may hold one of them, which then never dies by itself
_LOCK = threading.RLock()
_GROUPS: OrderedDict[tuple[int, ...], tuple[tuple[weakref.ref[Any], ...], dict[Hashable, Any]]] = OrderedDict()


def memo(of: object, key: Hashable, make: Callable[[], T]) -> T:
    """`make()`, called once for `of` and `key`.

    `of`: the object that the value is derived from, or a tuple of all of them; an `Answer` stands for its result, and None for
    something that is not there. `key` tells several values of the same objects apart, and holds what else `make` reads.
    """
    objects = [one.result if isinstance(one, Answer) else one for one in (of if isinstance(of, tuple) else (of,))]
    ids = tuple(map(id, objects))
    with _LOCK:
        group = _GROUPS.get(ids)
        if group is None or any(ref() is None for ref in group[0]):
            pop = _GROUPS.pop  # bound: at the end of the process a module's names go before what it remembers
            forget = lambda _: pop(ids, None)
            group = _GROUPS[ids] = tuple(weakref.ref(one, forget) for one in objects if one is not None), {}
        _GROUPS.move_to_end(ids)
        values = group[1]
        if key not in values:
            values[key] = make()
        while len(_GROUPS) > MOST:
            _GROUPS.popitem(last=False)
        return values[key]
