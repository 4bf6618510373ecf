"""Whether the weights of a file are packed integers: its tensors decide, and what is written beside them is then named, or noted.

transformers keeps `quantization_config` in the configuration of weights that it has unpacked, and GPTQ of 2023 wrote nothing into
`config.json` at all.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from circuitlab.errors import BadModel
from circuitlab.model.files.strict_json import read_object
from circuitlab.model.files.tensors import WEIGHT_KINDS, TensorSource

# parts of a packed weight: GPTQ and AWQ, bitsandbytes, fp8, compressed-tensors, MLX, mxfp4, HQQ, QuIP#
_PARTS = re.compile(
    r"(?:^|[._])(?:qweight|qzeros|g_idx|SCB|absmax|quant_map|weight_packed|weight_scales?(?:_inv|_2)?|weight_zero_point|input_scale"
    r"|scales|codebooks|Qidxs|W_q)$|\.quant_state\.|_(?:blocks|scales)$"
)
_FIELDS, _FILES = ("quantization_config", "quantization"), ("quantize_config.json", "quant_config.json")


def refuse_packed(config: Mapping[str, Any], folder: Path, source: TensorSource) -> tuple[str, ...]:
    """Raise `BadModel` where the tensors are packed integers; else a note where the files beside them say that they are."""
    said = _said(config, folder)
    names = sorted(source.names())
    parts = [n for n in names if _PARTS.search(n)]
    weights = [n for n in names if n.endswith("weight")]
    packed = [n for n in weights if source.kind(n) not in WEIGHT_KINDS] if said else []
    if not parts and not packed:
        kinds = " and ".join(sorted({source.kind(n) for n in weights})) or "plain numbers"
        return (f"{said}: but the tensors are {kinds}, and they are read as they are",) if said else ()
    one = (parts or packed)[0]
    raise BadModel(
        "The weights are quantised.",
        expected="tensors of float32, float16 or bfloat16: packed integers are not weights until they are unpacked",
        got="; ".join(part for part in (said, f"tensors such as {one[:80]} ({source.kind(one)})") if part),
        remedy="Open the checkpoint it was made from, or dequantise it with the library that made it and save that.",
    )


def _said(config: Mapping[str, Any], folder: Path) -> str:
    """Where it is written that the weights are quantised, and how; "" where it is not."""
    for name in _FIELDS:
        if config.get(name):
            return f"config.json has {name}, {_method(config[name])}"
    for name in _FILES:
        if (folder / name).is_file():
            return f"{name} lies beside the weights, {_method(read_object(folder / name))}"
    return ""


def _method(stated: Any) -> str:
    method = stated.get("quant_method") or stated.get("quant_algo") if isinstance(stated, Mapping) else stated
    bits = stated.get("bits", stated.get("w_bit")) if isinstance(stated, Mapping) else None
    width = f", {bits} bits" if isinstance(bits, int) else ""
    return f"method {str(method or 'not stated')[:40]!r}{width}"
