"""Messages as the text that a model was trained to read: the chat template among its files, rendered within limits.

A template is a program of a stranger. jinja2's sandbox lets it call nothing of Python, and does not keep it from going on for
ever: it runs in a process (`chat_child`) that is stopped.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, NamedTuple

from circuitlab.child_process import environment, python, started
from circuitlab.counting import number_of
from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.text.tokenizer_process import end, exchange

LOADING = 30.0  # s; the library is imported in 0.1 s on an idle machine
SECONDS = 2.0  # s for one text
MOST = 2**20  # characters of a text
LARGEST = 2**20  # bytes of a template; the longest of a public model has 20,000
_CHILD = Path(__file__).with_name("chat_child.py")
_REMEDY = "Type the prompt as the model was trained on it; its special tokens are read as they are spelled."


class Message(NamedTuple):
    """One turn of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class ChatTemplate:
    """A template in jinja2's language. `tokens`: what it calls the special tokens (`bos_token`), and how they are spelled."""

    text: str
    tokens: tuple[tuple[str, str], ...] = ()


def has_library() -> bool:
    """Whether the library that renders templates is installed; it is not imported."""
    return find_spec("jinja2") is not None


def rendered(template: ChatTemplate, messages: Sequence[Message], answers: bool = True) -> str:
    """The messages as one text. `answers`: it ends where the model's answer begins.

    Raises `BadMachine` without the library, `BadInput` for a template that takes too long, fails or refuses the messages.
    """
    if not has_library():
        what, remedy = "Chat templates need a package that is not installed.", "Install it: pip install 'circuitlab[chat]'."
        raise BadMachine(what, expected="jinja2, the extra [chat]", got="none", remedy=remedy)
    values: dict[str, object] = {"messages": [one._asdict() for one in messages], "add_generation_prompt": answers}
    values |= {"tools": None, "documents": None} | dict(template.tokens)
    request = {"template": template.text, "values": values, "most": MOST, "seconds": SECONDS}
    child = started(
        python(str(_CHILD)), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment(finds_us=True), apart=True
    )
    try:
        ready, _ = exchange(child, b"", LOADING)
        if ready is None or "error" in ready:
            got = "no answer" if ready is None else str(ready["error"])
            raise BadMachine(
                "The library jinja2 cannot be used.", expected="the extra [chat]", got=got, remedy="Install it again."
            )
        reply, late = exchange(child, json.dumps(request).encode(), SECONDS)
    finally:
        end([child])
    return _text(reply, late)


def _text(reply: Mapping[str, object] | None, late: bool) -> str:
    """The text that came. Raises `BadInput` where none did."""
    if reply is None:
        what = "The model's chat template does not come to an end." if late else "The model's chat template crashed."
        got = "no answer" if late else "the end of its process, perhaps for lack of memory"
        raise BadInput(what, expected=f"a text within {SECONDS:.0f} s", got=got, remedy=_REMEDY)
    if "many" in reply:
        expected = f"at most {number_of(MOST, 'character')}"
        raise BadInput("The model's chat template makes too long a text.", expected=expected, got="more", remedy=_REMEDY)
    if "refused" in reply:
        what, remedy = "The model's chat template refuses these messages.", "Change the messages as it says."
        raise BadInput(what, expected="messages that it takes", got=str(reply["refused"]), remedy=remedy)
    if not isinstance(text := reply.get("text"), str):
        what = "The model's chat template fails on these messages."
        got = str(reply.get("error") or "no text")
        raise BadInput(what, expected="a template that `transformers` renders", got=got, remedy=_REMEDY)
    return text


def too_large(size: int) -> str:
    """Why a template of so many bytes or characters is not read."""
    return f"{size:,} bytes, of at most {LARGEST:,}"


def template_among(found: object) -> str:
    """The template of what a file states: a text, or a list of named ones, of which `default` counts; "" for none."""
    if isinstance(found, str):
        return found
    named = [one for one in found if isinstance(one, Mapping)] if isinstance(found, list) else []
    texts = {str(one.get("name")): one.get("template") for one in named}
    chosen = texts.get("default", next(iter(texts.values()), None) if len(texts) == 1 else None)
    return chosen if isinstance(chosen, str) else ""
