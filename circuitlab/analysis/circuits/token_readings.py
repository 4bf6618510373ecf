"""What stands for a token where a circuit reads it: the three readings of W_E, their words, and where they apply.

    normalised tokens       norm(W_E)                          as the norm before attention scales the token alone
    tokens                  W_E                                as stored, as in the papers: up to a positive scale per token
    after the first MLP     norm(W_E + MLP_0(norm(W_E)))       as later layers read it, without attention

norm is the model's own, without its gain, which is in the weights (`factors`); what a LayerNorm takes away, the mean over
d_model, no table reads. A model without a norm before attention reads W_E itself: the first two are equal, and nothing is said
of them.

The norm's scale depends on the token, and only the first reading has it: the order of sources in a row of W_E W_QK W_Eᵀ is
another than that of the model's own scores. Tables read normalised tokens unless told otherwise, spectra the matrices of the
papers.

Those are of models with a layer or two, mostly without MLPs. In a deeper model with MLPs no head behind the first layer meets a
token as W_E has it, and the first two readings mislead: of 30 layers a head that copies (0.98 after the first MLP, rank 2 of 270)
has a copying score of −0.19 from W_E, rank 188. There captions say what is left out, and which reading has it (`without_mlp`).
"""

from __future__ import annotations

from typing import Literal

from circuitlab.analysis.circuits.effective_embedding import effective_words
from circuitlab.analysis.circuits.factors import refuse_inexact
from circuitlab.model.config import ModelConfig, NormKind
from circuitlab.model.subject import Head

Embedding = Literal["normalised tokens", "tokens", "after the first MLP"]
UNNORMALISED = "W_E rows unnormalised"
SHALLOW = 2  # layers of the papers' models, in which W_E itself is read
WITHOUT_MLP = "the first MLP left out, through which later heads read tokens: “after the first MLP” has it"


def reads_normed(config: ModelConfig) -> bool:
    """Whether attention reads the stream through a norm, so that normalised tokens are not W_E itself."""
    return config.norm != "none" and config.norm_placement in ("pre", "both")


def norm_read(config: ModelConfig, embed: Embedding) -> tuple[NormKind, float]:
    """(kind, ε) of the norm that rows of W_E pass in this reading; "none" for none."""
    return (config.norm, config.norm_eps) if embed == "normalised tokens" and reads_normed(config) else ("none", 0.0)


def left_unscaled(config: ModelConfig, embed: Embedding, shared: bool = False) -> tuple[str, ...]:
    """Of what the scale of a norm before attention is left out, for `exactness`.

    `shared`: the reader's norm scales its rows by more than they hold: those of an earlier head's OV circuit, or of a token
    behind the first layer, by all that is in the stream.
    """
    if not reads_normed(config):
        return ()
    return (*["position"] * shared, *["token"] * (embed == "tokens"))


def read_as(embed: Embedding, reader: Head) -> Embedding:
    """The reading of one head: heads of the first layer read before the first MLP."""
    return "normalised tokens" if embed == "after the first MLP" and reader.layer == 0 else embed


def without_mlp(config: ModelConfig, embed: Embedding, deepest: int) -> str:
    """What a reading of tokens leaves out in a deep model with MLPs, for captions, "" where it has it or the model has none.

    `deepest`: the layer of the last head that reads tokens in it; those of the first layer read before the first MLP.
    """
    misleads = not config.attention_only and config.n_layers > SHALLOW and deepest > 0
    return WITHOUT_MLP if misleads and embed != "after the first MLP" else ""


def token_words(config: ModelConfig, embed: Embedding, reader: Head) -> str:
    """What a table's rows are, for its caption, "" for W_E where nothing normalises it; `reader`: the head that reads them."""
    read = read_as(embed, reader)
    before = f"{reader} reads before the first MLP" if read != embed else ""
    if read == "after the first MLP":
        return effective_words(config)
    lacks = without_mlp(config, read, reader.layer)
    if not reads_normed(config):
        return f"{before}: the tokens themselves" if before else lacks
    alone = ", what earlier layers write left out" if reader.layer else ""
    scaled = (
        "W_E rows as the norm before attention scales them" if read != "tokens" else f"{UNNORMALISED}: up to a scale per token"
    )
    return "; ".join(t for t in (before, f"{scaled}{alone}", lacks) if t)


def matrix_words(config: ModelConfig, embed: Embedding, deepest: int = 0) -> str:
    """What stands for the tokens in a matrix over the vocabulary, for captions; "" for W_E where nothing normalises it.

    `deepest`: with what is left out for heads up to that layer (`without_mlp`).
    """
    if embed == "after the first MLP":
        return f"tokens after the first MLP: {effective_words(config)}"
    lacks = without_mlp(config, embed, deepest)
    if not reads_normed(config):
        return lacks
    scaled = f"{UNNORMALISED} (as in the paper)" if embed == "tokens" else "W_E rows as the norm before attention scales them"
    return "; ".join(filter(None, (scaled, lacks)))


def refuse_effective(config: ModelConfig) -> str | None:
    """Why the model has no embedding after the first MLP, or None if it has."""
    return "this model has no MLP: read the tokens themselves." if config.attention_only else refuse_inexact(config)


def refuse_reading(config: ModelConfig, embed: Embedding) -> str | None:
    """Why this reading of tokens says nothing of the model, or None."""
    return refuse_effective(config) if embed == "after the first MLP" else refuse_inexact(config)


def refuse_table(config: ModelConfig, embed: Embedding, readers: tuple[Head, ...]) -> str | None:
    """Why circuits over the vocabulary do not apply, or None if they do; `readers` are the heads that read token embeddings."""
    if reason := refuse_inexact(config) or refuse_reading(config, embed):
        return reason
    if embed == "after the first MLP" and all(reader.layer == 0 for reader in readers):
        return "heads of layer 0 read before the first MLP: read the tokens themselves."
    return None
