"""A vocabulary that is whole, and of a kind that is not read."""


class NotRead(Exception):
    """Why a vocabulary is not read, as a clause."""
