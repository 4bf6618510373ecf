"""What the choice of the token in front says of BOS: which token it is, whether a text begins with it, its part in training."""

from __future__ import annotations

from circuitlab.figures.contracts.facts import Facts

# What training used the token for, where its spelling shows it: GPT-2's and GPT-NeoX' (Radford et al. 2019, Black et al. 2022,
# Biderman et al. 2023: documents one after the other, with this token between two), and that of chats in ChatML.
_IN_TRAINING = {
    "<|endoftext|>": "In training it stood between two documents.",
    "<|im_start|>": "In training it began each message of a conversation.",
}


def bos_words(facts: Facts) -> str:
    """One to three sentences for the tip of the choice."""
    if facts.bos is None:
        return "No BOS token in this model's tokenizer" if facts.has_tokenizer else "Without a tokenizer no token is known as BOS"
    spelling = facts.token_text(facts.bos)
    says = (
        "This model's files put it before every text."
        if facts.config.prepend_bos
        else "This model's files put nothing before a text."
    )
    practice = _IN_TRAINING.get(spelling, "")
    return " ".join(filter(None, (f"BOS is {spelling}, id {facts.bos}.", says, practice)))
