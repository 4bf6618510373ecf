"""Calls in a pickle that are accepted: what they would create is named and never created.

Pickle stores most objects as class and attributes. Of some, and of every function that it is to run, it stores a call; those of
other functions than these are refused.
"""

from __future__ import annotations

from collections.abc import Mapping


def _names(module: str, names: str) -> dict[str, str]:
    return {f"{at}.{name}": f"{module}.{name}" for name in names.split() for at in (module, *_ALSO.get(module, ()))}


# other names of the same modules, in Python 2's pickles (which protocol 2 writes to this day) and in other versions
_ALSO = {
    "builtins": ("__builtin__",),
    "copyreg": ("copy_reg",),
    "pathlib": ("pathlib._local",),
    "numpy.core.multiarray": ("numpy._core.multiarray",),
    "numpy.core.numeric": ("numpy._core.numeric",),
}
CALLS: Mapping[str, str] = {
    **_names("builtins", "set frozenset complex range slice bytearray"),
    **_names("collections", "defaultdict Counter deque"),
    **_names("datetime", "datetime date time timedelta timezone"),
    **_names("pathlib", "Path PosixPath WindowsPath PurePath PurePosixPath PureWindowsPath"),
    **_names("types", "SimpleNamespace"),
    **_names("argparse", "Namespace"),
    **_names("decimal", "Decimal"),
    **_names("fractions", "Fraction"),
    **_names("uuid", "UUID"),
    **_names("functools", "partial"),
    **dict.fromkeys(_names("numpy.core.multiarray", "_reconstruct"), "numpy.ndarray"),
    **dict.fromkeys(_names("numpy.core.numeric", "_frombuffer"), "numpy.ndarray"),
    **dict.fromkeys(
        (f"numpy.random._pickle.__{kind}_ctor" for kind in ("randomstate", "generator", "bit_generator")), "numpy.random"
    ),
}
RECONSTRUCTORS = ("copyreg._reconstructor", "copy_reg._reconstructor")  # (class, base, state) of older protocols
