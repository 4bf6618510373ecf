"""Work that figures do once: what is derived from answers stays the same object, so that it is not drawn again.

Remembered by the objects that it was made of, weakly: with any one of them what was made of it goes. An `id` of an object that
nobody holds is given to another one, and with it another one's numbers.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")
MOST = 256  # groups of objects: what was made of two or more may hold one of them, which then never goes by itself
_LOCK = threading.RLock()
_MADE: OrderedDict[tuple[int, ...], tuple[tuple[weakref.ref[Any], ...], dict[Hashable, Any]]] = OrderedDict()


def memo(of: tuple[object, ...], key: Hashable, make: Callable[[], T]) -> T:
    """`make()` once for these objects (None among them stands for itself) and this key."""
    where = tuple(map(id, of))
    with _LOCK:
        found = _MADE.get(where)
        if found is None or any(ref() is None for ref in found[0]):
            pop = _MADE.pop  # bound: at the end of the process a module's names go before what it remembers
            forget = lambda _: pop(where, None)
            found = _MADE[where] = tuple(weakref.ref(one, forget) for one in of if one is not None), {}
        _MADE.move_to_end(where)
        made = found[1]
        if key not in made:
            made[key] = make()
        while len(_MADE) > MOST:
            _MADE.popitem(last=False)
        return made[key]
