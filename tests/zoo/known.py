"""What does not hold yet, and what need not: each entry with its reason. Entries that are not found again have to go.

`BROKEN` may only shrink.
"""

from __future__ import annotations

MOST = 0  # entries of BROKEN: lower it with each that goes

# (law, analysis) -> why. Laws are those of `walk.broken`, and the names of invariances.
BROKEN: dict[tuple[str, str], str] = {}

# What an analysis refuses only once it runs, by a part of the sentence.
REFUSED_IN_RUN: dict[str, tuple[str, ...]] = {"over_prompts": ("The model has no tokenizer.",)}

_MASK = "the mask or the window hides the source"
_FIRST = "the first token is predicted by nothing, or the last one has no next"
_OUTSIDE = "not in the output vocabulary"
_EARLIER = "the source is not in an earlier layer"
_MAPS = "input and output vocabulary differ, or the matrix is zero"
_TEXT = "no bigrams of a training text are beside the model"
_ONE = "a spread or an error over less than two samples"
_WITHOUT = "there is no such destination, token or pair in so short a prompt"
_ASKED = "computed only where it is asked for"


def _each(fields: tuple[str, ...], why: str) -> dict[str, str]:
    return dict.fromkeys(fields, why)


# Fields that may hold NaN, "not computed", and why.
NOT_COMPUTED: dict[str, dict[str, str]] = {
    "ablation": {"token_change": _FIRST} | _each(("baseline", "effect", "set_effect"), _WITHOUT),
    "activations": {"values": _MASK},
    "answer_attention": _each(("to_source", "to_other", "even"), "the answer, or the other one, stands nowhere before"),
    "attention": {"values": _MASK},
    "attention_overview": {"sheet": _MASK, "means": _WITHOUT, "largest_after": _WITHOUT},
    "bigram": {"corpus_log_probs": _TEXT, "correlation": _TEXT, "correlation_all": _TEXT, "symmetry": _MAPS},
    "composition": {"scores": _EARLIER, "z": _EARLIER},
    "copying_head_score": {"spread": _ONE, "mean": _WITHOUT},
    "copying_scores": _each(("copying", "copying_raw", "diagonal_mean", "diagonal_share"), _MAPS),
    "direct_path": {"correlation": _TEXT, "rows": _TEXT, "symmetry": _MAPS},
    "embedding_products": {"M": _MAPS},
    "head_scores": {"mean": _WITHOUT, "spread": _ONE, "control": _WITHOUT},
    "head_step": {"scores": _MASK, "softmax_score": _MASK},
    "in_context": _each(("control", "control_scores", "controlled", "controlled_error"), "no control model is named")
    | _each(("losses", "loss", "spread", "derivative"), _FIRST)
    | _each(("scores", "repetitions", "score", "error"), _WITHOUT),
    "keep_only": _each(("intact", "bare", "circuit", "without", "random_kept", "random_cut", "left_out"), _WITHOUT),
    "logit_lens": {"log_prob": _FIRST},
    "ov_table": {"own": _MAPS},
    "pair_positivity": {"pairs": _EARLIER, "pairs_raw": _EARLIER},
    "patching": {"estimate": _ASKED, "values": "outside the causal cone of a prompt that differs nowhere"},
    "path_patching": {"values": "not a receiver, or not after the sender"},
    "predictions": {"actual_log_prob": _FIRST, "actual_logit": _FIRST},
    "prefix_stripe": {"mass": _WITHOUT},
    "previous_head_spectrum": _each(("pairs", "pairs_raw", "weighted", "weighted_raw"), _EARLIER)
    | {"copying": _MAPS, "p": _WITHOUT},
    "privileged_basis": _each(("kurtosis", "control"), "a dimension that does not vary over so few positions"),
    "qk_table": {"sigma": "keys are not smeared"},
    "residual_norms": {"cosine": "the first part of the stream, or an output of length 0"},
    "score_expansion": {"softmax_score": _MASK},
    "side_by_side": {"loss": _FIRST, "probability": _OUTSIDE},
    "skip_trigrams": _each(("probability", "without_source", "in_corpus", "followed"), "only of candidates for bugs"),
    "skip_trigrams_in_text": _each(
        ("destination_nats", "out_nats", "example_logit", "example_nats", "attention", "logit", "nats", "placed"), _WITHOUT
    ),
    "subspace_overlap": {"cosines": "beyond the smaller rank", "weighted": "the model has no such matrix"},
    "tensor_identity": _each(("difference", "of"), "a statement that this model has no case of"),
    "term_importance": _each(("error", "head_error", "layer_error"), _ONE)
    | _each(("heads", "head_reduction"), _ASKED)
    | _each(("losses", "layers", "reduction", "layer_reduction", "whole", "uniform", "terms"), _WITHOUT),
    "theory_and_measurement": _each(("predicted", "measured", "rho", "low", "high"), "no such pair of measures here"),
    "token_attribution": {"values": _MASK, "summed": _MASK}
    | _each(("placed", "total", "rest"), "of sources alone, which destinations are not"),
    "token_circuits": _each(("top", "bottom", "mean", "sd"), _MAPS),
    "token_loss": {"loss": _FIRST},
    "virtual_head": {"pattern": _MASK},
    "virtual_weight": {"across_norm": _ASKED, "direct_norm": _ASKED},
}

# Analyses that intervene in runs of their own, where an intervention that changes nothing may still belong to one prompt.
OF_RUNS_OF_THEIR_OWN: dict[str, str] = {
    "over_prompts": "its prompts are others, and a patch belongs to one",
}

# Analyses, and fields of others, that are about all positions together, or about positions behind the one that is asked of.
_MEANS = "means over the positions of the prompt"
_OWN_TEXTS = "of texts of its own, all of each"
OF_ALL_POSITIONS: dict[str, str] = {
    "attention_overview": _MEANS,
    "head_scores": _MEANS,
    "over_prompts": _OWN_TEXTS,
    "privileged_basis": _MEANS,
    "tensor_identity": "the largest difference over the positions of the prompt",
}
FIELDS_OF_ALL_POSITIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "token_attribution": (("ids",), "of destinations: the targets at the later ones"),
}

# Fields in which rounding decides, and the order of sums may change it.
OF_ROUNDING: dict[str, tuple[tuple[str, ...], str]] = {
    "patching": (("inside", "estimate"), "cells that are the same in both runs down to their bits are not computed"),
    "rotation_check": (("difference", "logit_range"), "it measures rounding itself"),
}

# Fields that show the basis, the gauge, or what softmax does not see: (analysis, change) -> (fields, how that is said).
_RAW = "the papers' raw value beside the centred one, called so"
_MIDDLE = "an intermediate that is not listed: a product of embeddings, from which others take what is invariant"
_VECTORS = "vectors of the stream as they are, entry by entry"
_OWN = "the head's own vectors as they are, entry by entry"
OF_BASIS: dict[tuple[str, str], tuple[tuple[str, ...], str]] = {
    ("copying_scores", "logits alike"): (("copying_raw",), _RAW),
    ("ov_spectrum", "logits alike"): (("eigenvalues_raw", "copying_raw"), _RAW),
    ("embedding_products", "logits alike"): (("M", "unembed_mean"), _MIDDLE),
    ("unembedding_gram", "logits alike"): (("K", "mean"), _MIDDLE),
    ("embedding_products", "reads along 1"): (("M", "unembed_mean"), _MIDDLE),
    ("unembedding_gram", "reads along 1"): (("K", "mean"), _MIDDLE),
    ("embedding_products", "rotation"): (("M", "unembed_mean", "embed_mean"), _MIDDLE),
    ("embedding_gram", "rotation"): (("G", "mean", "mean_destination"), _MIDDLE),
    ("unembedding_gram", "rotation"): (("K", "mean"), _MIDDLE),
    ("effective_embedding", "rotation"): (("values",), _VECTORS),
    ("activations", "rotation"): (("values",), _VECTORS),
    ("singular_vectors", "rotation"): (("U", "V"), _VECTORS),
    ("head_step", "rotation"): (
        ("x_dest", "x_source", "read_query", "read_key", "read_value", "result", "moved"),
        _VECTORS,
    ),
    ("tensor_identity", "rotation"): (("of",), "the largest entry of such a vector, which a difference is judged by"),
    ("head_step", "QK gauge"): (("q", "k", "products"), _OWN),
    ("score_parts", "QK gauge"): (("q", "k"), _OWN),
    ("head_step", "OV gauge"): (("v", "weighted", "z"), _OWN),
    ("privileged_basis", "rotation"): (
        ("kurtosis", "weights", "token_kurtosis", "control", "weights_control", "token_control"),
        "it measures the basis",
    ),
}


def basis_of(name: str, change: str) -> frozenset[str]:
    """The fields of an analysis that a change of the weights may move."""
    return frozenset(OF_BASIS.get((name, change), ((), ""))[0]) | rounding_of(name)


def all_positions_of(name: str) -> frozenset[str]:
    """The fields of an analysis that are about more than the position that is asked of, and those before it."""
    return frozenset(FIELDS_OF_ALL_POSITIONS.get(name, ((), ""))[0])


def rounding_of(name: str) -> frozenset[str]:
    """The fields of an analysis in which rounding decides."""
    return frozenset(OF_ROUNDING.get(name, ((), ""))[0])
