"""A model's chat template, rendered in a process of its own, which can be stopped and whose memory is limited.

Started as a script by `chat_template`. Frames as those of `tokenizer_child`: the first is answered once jinja2 is there, the
second is {"template", "values", "most", "seconds"}, answered by {"text"}, {"refused": the template's own words} or {"error"}. It
ends with its parent, as the other does, and has forgotten the environment by the time that it renders.

Rendered as `transformers` does it (`chat_template_utils`): an immutable sandbox without blank lines of blocks, with the filter
`tojson`, the functions `raise_exception` and `strftime_now`, `break` and `continue`, and `{% generation %}`, which shows its
content.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from typing import Any, NoReturn

from circuitlab.disk.json_types import JsonDict
from circuitlab.errors import cause
from circuitlab.model.text.tokenizer_child import LOADING, confined, limit, read_frame, write_frame

MEMORY = 2**30  # bytes of address space, on systems that can limit it


def _rendered(request: JsonDict) -> JsonDict:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, LoopControlExtension
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Refused(TemplateError):
        """What a template says of messages that it does not take."""

    class Generation(Extension):
        """The part of a template that the model writes: its content alone matters here."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            return nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True)).set_lineno(line)

    def refuse(message: object) -> NoReturn:
        raise Refused(str(message))

    def as_json(
        value: object,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    sandbox = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, LoopControlExtension])
    sandbox.filters["tojson"] = as_json
    sandbox.globals["raise_exception"] = refuse
    sandbox.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    text = ""
    try:
        for piece in sandbox.from_string(request["template"]).generate(request["values"]):
            text += piece
            if len(text) > request["most"]:
                return {"many": len(text)}
    except Refused as error:
        return {"refused": str(error)[:500]}
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return {"error": cause(error)}
    return {"text": text}


def main() -> None:
    """Answer one request."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    confined(requests, MEMORY, LOADING)
    if read_frame(requests) is None:
        return
    try:
        import jinja2.sandbox  # noqa: F401  # pyright: ignore[reportUnusedImport]

        reply: JsonDict = {}
    except Exception as error:
        reply = {"error": f"{type(error).__name__}: {error}"}
    write_frame(answers, json.dumps(reply).encode())
    data = read_frame(requests)
    if data is None:
        return
    for name in set(os.environ) - {"TZ"}:  # `strftime_now` keeps its time zone
        del os.environ[name]
    try:
        request = json.loads(data)
        limit(request["seconds"])
        reply = _rendered(request)
    except BaseException as error:  # what a template can do wrong has no end: recursion, memory, a syntax of its own
        reply = {"error": f"{type(error).__name__}: {error}".partition("\n")[0][:200].removesuffix(": ")}
    write_frame(answers, json.dumps(reply).encode())


if __name__ == "__main__":
    main()
