"""Import by a map: a TOML file that states where each canonical tensor is in a checkpoint of an unknown family.

    under = "model_state"                   # the key of the checkpoint that holds the weights, optional
    prefix = "model."                       # prefix of their names, optional
    ignore = [".mask"]                      # endings of names that are not weights
    [config]                                # fields of ModelConfig
    n_layers = 2
    [tensors]                               # ours = theirs; {i} is the layer
    "embed.W_E" = "wte.weight"
    W_Q = { from = "h.{i}.qkv.weight", transpose = true, split = "q", heads = true }
    W_K = { from = "h.{i}.heads.{h}.key.weight", transpose = true }    # one tensor per head: {h}
    W_O = { identity = true }               # no output projection: the heads' results are concatenated

Steps are applied in the order `transpose`, `permute`, `split` ("q", or "q within heads"), `half`, `heads`, `offset`; a name that
ends in `[{i}]` is one slice of a tensor that holds all layers. `survey` reports all problems at once, every default that was
applied, and what shapes cannot show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch

from circuitlab.counting import number_of
from circuitlab.disk.files import read_at_most
from circuitlab.disk.json_types import JsonObject
from circuitlab.disk.toml_reading import toml_of
from circuitlab.errors import BadModel, UsageError, advising, cause, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.renamed import Sliced, whole_of
from circuitlab.model.files.tensors import WEIGHT_KINDS, TensorSource
from circuitlab.model.importing.unseen import defaults, unseen
from circuitlab.model.lazy_weights import expected_shapes, need_names
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.loading.layout import LaidOut, Layout, Misfit, Stored, Which, identity, least_names, stacked, stored
from circuitlab.model.loading.leftovers import attention_among

_STEPS = {"from", "transpose", "permute", "split", "half", "heads", "offset", "identity"}
_MAPS = {"W_Q": "q", "W_K": "k", "W_V": "v", "W_O": "o"}
_WITHIN = " within heads"
_OPTIONAL = ("norm.gain", "norm.bias")  # a norm may have neither
_LARGEST = 2**20
_LONGEST_NAME = 500  # characters of a tensor's, as in files
_MOST_LINES, _MOST_HEADS = 2**20, 4096  # lines of the map times layers; heads that are a tensor each
_REMEDY = "Correct the map; the README explains it under Any other checkpoint."


@dataclass(frozen=True)
class ImportMap:
    """A parsed map: our configuration, where each tensor is, and the key of the checkpoint that holds the weights (`under`).

    `stated`: the configuration fields that the map states; None: all of them.
    """

    config: ModelConfig
    layout: Layout
    under: str | None = None
    stated: frozenset[str] | None = None


def read_map(path: Path) -> ImportMap:
    """The map in a TOML file. Raises `UsageError` if it cannot be read, `BadModel` for a contradictory configuration."""
    try:
        read = read_at_most(path, _LARGEST)
        if read is None:
            raise UsageError(
                "The map is too large.",
                expected="at most 1 MiB",
                got="more",
                remedy="Name the TOML file with --map, not the weights.",
            )
        data = toml_of(read.decode("utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError("The map cannot be read.", expected="a TOML file", got=cause(error), remedy=_REMEDY) from error
    return map_of(data)


def map_of(data: Mapping[str, object]) -> ImportMap:
    """The map in parsed TOML. Raises as `read_map` does."""
    with advising(_REMEDY):
        return _map_of(data)


def _map_of(data: JsonObject) -> ImportMap:
    sections = {"under": str, "prefix": str, "ignore": list, "config": dict, "tensors": dict}
    for name, value in data.items():
        if name not in sections or not isinstance(value, sections[name]):
            raise UsageError("The map has an unknown part.", expected=" ".join(sections), got=f"{name} {value!r}"[:80])
    fields = data.get("config", {})
    try:
        config = ModelConfig.from_json(fields, "[config] of the map")
    except BadModel as error:
        remedy = "State them under [config] in the map."
        raise BadModel(error.what, expected=error.expected, got=error.got, remedy=remedy) from error
    lines = data.get("tensors", {})
    if len(lines) * config.n_layers > _MOST_LINES:
        raise UsageError(
            "The map has too many tensors.",
            expected=f"at most {_MOST_LINES:,} in all layers",
            got=f"{number_of(len(lines), 'line')} for each of {number_of(config.n_layers, 'layer')}",
        )
    ends: dict[str, Stored] = {}
    block: dict[str, Stored] = {}
    for ours, value in lines.items():
        where = _stored(config, ours, value)
        (ends if ours.startswith(("embed.", "unembed.")) else block)[ours] = where
    ignore = tuple(str(name) for name in data.get("ignore", ()))
    prefix = data.get("prefix", "")
    layout = Layout(ends, block, ignore, (prefix,) if prefix else ("",))
    return ImportMap(config, layout, data.get("under"), frozenset(fields))


def _stored(config: ModelConfig, ours: str, value: object) -> Stored:
    """One line of `[tensors]`. Raises `UsageError`."""
    steps = {"from": value} if isinstance(value, str) else value
    if isinstance(steps, dict) and _flag(ours, steps, "identity"):
        return _identity(ours, steps)
    if not isinstance(steps, dict) or not isinstance(steps.get("from"), str):
        raise UsageError(f"The map’s {ours} cannot be read.", expected="a name, or {from = NAME, …}", got=quoted(value))
    if len(steps["from"]) > _LONGEST_NAME:
        raise UsageError(f"The map’s {ours} cannot be a name.", expected=f"{_LONGEST_NAME} characters", got=quoted(steps["from"]))
    if unknown := sorted(set(steps) - _STEPS):
        raise UsageError(f"The map’s {ours} has unknown steps.", expected=" ".join(sorted(_STEPS)), got=" ".join(unknown))
    if "{h}" not in steps["from"]:
        return _stepped(ours, steps)
    if ours not in (*_MAPS, "b_Q", "b_K", "b_V") or "heads" in steps:
        raise UsageError(
            f"The map’s {ours}: {{h}} is one tensor per head.",
            expected=f"{' '.join(_MAPS)} b_Q b_K b_V, without heads = true",
            got=quoted(value),
        )
    n = config.n_kv_heads if ours[-1] in "KV" else config.n_heads
    if n > _MOST_HEADS:
        raise UsageError(
            f"The map’s {ours} has too many heads.", expected=f"at most {_MOST_HEADS:,}, a tensor each", got=f"{n:,}"
        )
    return stacked([_stepped(ours, {**steps, "from": steps["from"].replace("{h}", str(h))}) for h in range(n)])


def _identity(ours: str, steps: Mapping[str, object]) -> Stored:
    """A matrix that is not stored: the identity, split by heads if it has them."""
    if set(steps) != {"identity"} or ours not in (*_MAPS, "embed.W_E", "unembed.W_U"):
        raise UsageError(
            f"The map’s {ours} cannot be the identity in this form.",
            expected=f"{{ identity = true }}, of {' '.join(_MAPS)} embed.W_E or unembed.W_U",
            got=quoted(dict(steps)),
        )
    return identity().heads(cast("Which", _MAPS[ours])) if ours in _MAPS else identity()


def _stepped(ours: str, steps: JsonObject) -> Stored:
    """One stored tensor with its steps. Raises `UsageError`."""
    where = stored(steps["from"])
    where = where.T if _flag(ours, steps, "transpose") else where
    if (order := steps.get("permute")) is not None:
        where = where.then(_permuted(ours, order))
    where = _split(ours, where, steps.get("split"))
    if (half := steps.get("half")) is not None:
        if half not in (0, 1) or isinstance(half, bool):
            raise UsageError(f"The map’s {ours}: half is the first or the second.", expected="0 or 1", got=quoted(half, 40))
        where = where.half(half)
    if _flag(ours, steps, "heads"):
        which = ours[-1].lower()
        if ours[:2] not in ("W_", "b_") or which not in "qkvo" or ours == "b_O":
            raise UsageError(f"The map’s {ours} has no heads.", expected="W_Q W_K W_V W_O b_Q b_K b_V", got=ours[:40])
        where = where.heads(cast("Which", which))
    return _shifted(ours, where, steps.get("offset"))


def _flag(ours: str, steps: Mapping[str, object], name: str) -> bool:
    value = steps.get(name, False)
    if not isinstance(value, bool):
        raise UsageError(f"The map’s {ours}: {name} is neither true nor false.", expected="true or false", got=quoted(value, 40))
    return value


def _permuted(ours: str, order: object) -> Callable[[ModelConfig, torch.Tensor], torch.Tensor]:
    if not isinstance(order, list) or sorted(map(repr, order)) != [repr(i) for i in range(len(order))]:
        raise UsageError(
            f"The map’s {ours}: permute is not an order of axes.", expected="such as [0, 2, 1]", got=quoted(order, 60)
        )

    def permuted(c: ModelConfig, x: torch.Tensor) -> torch.Tensor:
        if x.dim() != len(order):
            raise Misfit(f"permute {order} needs {len(order)} axes, and {tuple(x.shape)} has {x.dim()}")
        return x.permute(order)

    return permuted


def _split(ours: str, where: Stored, text: object) -> Stored:
    if text is None:
        return where
    which = text.removesuffix(_WITHIN) if isinstance(text, str) else ""
    if not isinstance(text, str) or which not in ("q", "k", "v"):
        raise UsageError(
            f"The map’s {ours}: split has an unknown value.", expected=f'"q" "k" "v", or "q{_WITHIN}"', got=quoted(text, 60)
        )
    return where.within_heads(which) if text.endswith(_WITHIN) else where.beside(which)


def _shifted(ours: str, where: Stored, offset: object) -> Stored:
    if offset is None:
        return where
    if isinstance(offset, bool) or not isinstance(offset, int | float):
        raise UsageError(f"The map’s {ours}: offset is not a number.", expected="such as 1", got=quoted(offset, 40))
    return where.then(lambda c, x: x.float() + offset)


@dataclass(frozen=True)
class Survey:
    """The outcome of applying a map to a file. `problems` are sentences, () for a complete model; `unused`: names in the file.

    `assumed`: the defaults of fields that the map leaves out; `unseen`: what the shapes of these tensors cannot show.
    """

    problems: tuple[str, ...]
    unused: tuple[str, ...]
    used: int
    notes: tuple[str, ...] = field(default=())
    assumed: tuple[Assumption, ...] = field(default=())
    unseen: tuple[str, ...] = field(default=())


def survey(import_map: ImportMap, source: TensorSource) -> tuple[Survey, LaidOut]:
    """All problems of a map for this file, and the parts of the resulting model."""
    need_names(least_names(import_map.layout, import_map.config.n_layers), source, import_map.config.sizes)
    prefix = import_map.layout.prefixes[0]
    parts = LaidOut(import_map.config, import_map.layout, Sliced(source, frozenset(_tensor_names(import_map, prefix))), prefix)
    shapes, problems, used = expected_shapes(import_map.config), list[str](), set[str]()
    mapped = set[str]()
    for name, where, i in import_map.layout.each(import_map.config):
        mapped.add(name)
        names = tuple(map(parts.full, where.names(i)))
        used |= {whole_of(n) for n in names}
        if name not in shapes:
            problems.append(f"{name} has no place in a model of this configuration")
        elif missing := [n for n in names if n not in parts.source.names()]:
            problems.append(f"{name}: there is no tensor {missing[0]}")
        elif wrong := [n for n in names if parts.source.kind(n) not in WEIGHT_KINDS]:
            problems.append(f"{name}: {wrong[0]} has a dtype that weights cannot have, {parts.source.kind(wrong[0])}")
        elif misfit := _misfit(parts, where, i, shapes[name]):
            report = f"{name} from {names[0]} {parts.source.shape(names[0])}" if names else name
            problems.append(f"{report}: {misfit}")
    unmapped = [n for n in shapes if n not in mapped]
    problems += [f"{n} {shapes[n]}: the map does not state where it is" for n in unmapped if not n.endswith(_OPTIONAL)]
    unused = tuple(sorted(n for n in source.names() - used if not n.endswith(import_map.layout.buffers or ("\0",))))
    problems += [
        f"{n}: a tensor of attention that the map does not use (use it, or list it under ignore)"
        for n in attention_among(source, unused)
    ]
    plain = [n for n in unmapped if n.endswith(_OPTIONAL)]
    notes = (
        (f"norms without gain or bias, written as 1 and 0: {', '.join(plain[:6])}{' …' if plain[6:] else ''}",) if plain else ()
    )
    assumed = defaults(import_map.config, import_map.stated) if import_map.stated is not None else ()
    report = Survey(tuple(problems), unused, len(used & source.names()), notes, assumed, unseen(parts))
    return report, parts


def canonical(config: ModelConfig, tensors: Mapping[str, object]) -> Layout:
    """The layout of `tensors`, which have canonical names already; gains and biases of norms may be absent."""
    names = [n for n in expected_shapes(config) if n in tensors or not n.endswith(_OPTIONAL)]
    layers: dict[int, dict[str, Stored]] = {i: {} for i in range(config.n_layers)}
    for name in (n for n in names if n.startswith("layers.")):
        _, i, rest = name.split(".", 2)
        layers[int(i)][rest] = stored(name)
    return Layout({n: stored(n) for n in names if not n.startswith("layers.")}, {}, own=layers)


def _tensor_names(import_map: ImportMap, prefix: str) -> set[str]:
    return {
        start + n for _, where, i in import_map.layout.each(import_map.config) for n in where.names(i) for start in {prefix, ""}
    }


def _misfit(parts: LaidOut, where: Stored, i: int, expected: tuple[int, ...]) -> str:
    """Why a tensor does not have the expected shape after its steps, and what to do; "" if it has."""
    without_data = lambda name: torch.empty(parts.source.shape(parts.full(name)), device="meta")
    try:
        shape = tuple(where.take(parts.config, without_data, i).shape)
    except Misfit as error:
        reason = str(error)
    except (RuntimeError, IndexError, ValueError):  # from torch, of tensors that are joined
        reason = f"its steps do not give {expected}"
    else:
        reason = "" if shape == expected else f"becomes {shape}, not {expected}"
    if reason and not where.names(i):
        c = parts.config
        sizes = f"d_model is {c.d_model}, n_heads · d_head {c.n_heads * c.d_head}, d_vocab {c.d_vocab}"
        return f"{expected} cannot be the identity, which is square: {sizes}; name the tensor, or correct [config]"
    return reason


def refuse_problems(report: Survey) -> None:
    """Raise `BadModel` with all problems, if there are any."""
    if report.problems:
        more = [f"and {len(report.problems) - 20} more"] if report.problems[20:] else []
        raise BadModel(
            "The map does not give a complete model.",
            expected="every tensor of the configuration, each in its shape",
            got="\n            ".join([*report.problems[:20], *more]),
            remedy="Correct the map; `circuitlab import FILE --map MAP --check` reports without writing.",
        )
