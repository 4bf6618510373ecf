"""What an attribution holds at its recorded values, for captions: a norm or an MLP that the model lacks is not named."""

from __future__ import annotations

from circuitlab.model.config import ModelConfig


def recorded_scales(c: ModelConfig) -> str:
    """The scales that are held, "" for none."""
    return " and ".join(["norm scales"] * (c.norm != "none") + ["q/k-norm scales"] * (c.qk_norm != "none"))


def recorded_parts(c: ModelConfig) -> str:
    """Patterns, and what else is held with them."""
    scales = ["norm scales"] * (c.norm != "none")
    return ", ".join(["patterns", *scales, *([] if c.attention_only else ["MLP outputs"])])


def at_final_scale(c: ModelConfig) -> str:
    """How an effect on logits passes the final norm, after a comma; "" without one."""
    return ", at the recorded scale of the final norm" if c.norm != "none" and c.final_norm else ""
