"""Chat templates of models: the text that `transformers` renders, and within limits whatever a template does."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from circuitlab.errors import BadInput, BadMachine
from circuitlab.model.loading.tokenizer_files import find_tokenizer
from circuitlab.model.text import chat_template
from circuitlab.model.text.chat_template import ChatTemplate, Message, rendered
from tests.models import byte_tokenizer, directory

CHATML = """{% for message in messages %}
    {% if loop.first and message.role != 'system' %}
{{ '<|im_start|>system\\nYou are SmolLM.<|im_end|>\\n' }}
    {%- endif %}
{{ bos_token }}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] | trim + '<|im_end|>' + '\\n' }}
{% endfor %}
{% if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{% endif %}"""
TEMPLATES = {
    "ChatML": CHATML,
    "what the model writes": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %};{% endfor %}",
    "JSON, breaks": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m | tojson(indent=1) }}{% endfor %}"
    "é{{ 'é<' | tojson }}",
    "Llama's": "{%- if messages[0].role == 'system' %}<<SYS>>{{ messages[0].content }}"
    "{%- set messages = messages[1:] %}{% endif %}"
    "{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}{{ tools is none }}",
}
CHATS = {
    "one": (Message("user", "  a < b & “c”\n"),),
    "two": (Message("system", "Be brief."), Message("user", "Why?")),
}


@pytest.mark.parametrize("chat", CHATS)
@pytest.mark.parametrize("name", TEMPLATES)
def test_the_text_is_that_of_transformers(name: str, chat: str) -> None:
    theirs = PreTrainedTokenizerFast(tokenizer_object=byte_tokenizer()._inner, bos_token="<|bos|>")
    messages = [one._asdict() for one in CHATS[chat]]
    template = ChatTemplate(TEMPLATES[name], (("bos_token", "<|bos|>"),))
    for answers in (True, False):
        given: dict[str, Any] = {"chat_template": template.text, "tokenize": False, "add_generation_prompt": answers}
        assert rendered(template, CHATS[chat], answers) == theirs.apply_chat_template(messages, **given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ raise_exception('Only a user may speak.') }}", "Only a user may speak."),
        ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "no answer"),
        ("{% for a in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "more"),
        ("{{ 'a' * 100000000000 }}", "MemoryError"),
        ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{% if %}", "TemplateSyntaxError"),
        ("{{ '\\ud800' }}x", "half of a character at place 0"),
        ("{{ range(10**9) | list }}", "OverflowError"),
        ("{{ 'a' | center(10**10) }}", "MemoryError"),
        ("{{ strftime_now('%Y' * 10**9) }}", "MemoryError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for m in messages recursive %}{{ loop(messages) }}{% endfor %}", "RecursionError"),
        ("{{ " + "(" * 100_000 + "1" + ")" * 100_000 + " }}", "RecursionError"),
        ("{{ '{0.__class__.__mro__}'.format(1) }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__ }}", "SecurityError"),
        ("{{ joiner.__call__.__globals__ }}", "SecurityError"),
        ("{% include '/etc/passwd' %}", "TypeError"),
        ("{% extends 'config.json' %}", "TypeError"),
    ],
    ids=[
        *("refuses", "for ever", "too long", "memory", "escapes", "changes", "syntax", "half of a pair", "range", "padding"),
        *("date", "recursion", "recursive loop", "deep", "format", "cycler", "joiner", "includes", "extends"),
    ],
)
def test_whatever_a_template_does_is_said(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        rendered(ChatTemplate(text), CHATS["one"])
    assert said in caught.value.got and caught.value.remedy


@pytest.mark.parametrize(
    "text",
    [
        *(f"{{{{ {name}.__globals__ }}}}" for name in ("lipsum", "raise_exception", "strftime_now")),
        "{{ lipsum | attr('__globals__') }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ ('{0.__class__}' | attr('format'))('x') }}",
        "{{ self._TemplateReference__context }}",
        "{{ strftime_now.__code__ }}",
        "{{ (messages | map('upper')).gi_frame }}",
    ],
)
def test_what_leads_out_of_the_sandbox_is_nothing(text: str) -> None:
    assert rendered(ChatTemplate(text), CHATS["one"]) == ""


def test_the_process_knows_the_time_zone_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Told by a library that writes the environment, in place of the sandbox."""
    monkeypatch.setenv("TZ", "XXX-7")
    monkeypatch.setenv("SECRET", "s")
    stub = "import sys, os; from circuitlab.model.text import chat_child as c; "
    stub += "c._rendered = lambda request: {'text': ' '.join(sorted(os.environ))}; c.main()"
    monkeypatch.setattr(chat_template, "python", lambda script: [sys.executable, "-P", "-c", stub])
    assert rendered(ChatTemplate("a"), CHATS["one"]) == "TZ"


def test_without_the_library_the_remedy_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "find_spec", lambda name: None)
    with pytest.raises(BadMachine) as caught:
        rendered(ChatTemplate("a"), CHATS["one"])
    assert "circuitlab[chat]" in caught.value.remedy


@pytest.mark.parametrize(
    ("settings", "file", "found"),
    [
        ({"chat_template": "a"}, None, "a"),
        ({"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "d"}]}, None, "d"),
        ({"chat_template": [{"name": "rag", "template": "r"}, {"name": "tool", "template": "t"}]}, None, None),
        ({"chat_template": "a"}, "of the file", "of the file"),
        ({"chat_template": 3}, None, None),
        ({}, None, None),
    ],
)
def test_the_template_is_found_among_the_files(
    tmp_path: Path, settings: dict[str, Any], file: str | None, found: str | None
) -> None:
    folder = directory(tmp_path / "m")
    more = {"bos_token": {"content": "<|bos|>"}, "eos_token": "</s>", "pad_token": None}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | more), encoding="utf-8")
    if file is not None:
        (folder / "chat_template.jinja").write_text(file, encoding="utf-8")
    tokenizer = find_tokenizer(folder)
    assert tokenizer is not None
    assert tokenizer.chat == (None if found is None else ChatTemplate(found, (("bos_token", "<|bos|>"), ("eos_token", "</s>"))))


@pytest.mark.parametrize(
    ("where", "settings", "said"),
    [
        ("settings", {"chat_template": "a" * (2**20 + 1)}, "1,048,577 bytes"),
        ("sparse", {}, "1,099,511,627,776 bytes"),
        ("unreadable", {"chat_template": "a"}, "cannot be read"),
    ],
)
def test_a_template_that_is_not_read_is_no_reason_to_refuse_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, settings: dict[str, Any], said: str
) -> None:
    folder = directory(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    if where != "settings":
        (folder / "chat_template.jinja").touch()
    if where == "sparse":
        os.truncate(folder / "chat_template.jinja", 2**40)
    if where == "unreadable":
        as_it_is = os.open

        def refusing(path: Any, *how: Any, **more: Any) -> int:
            if str(path).endswith(".jinja"):
                raise PermissionError(13, "Permission denied")
            return as_it_is(path, *how, **more)

        monkeypatch.setattr(os, "open", refusing)
    tokenizer = find_tokenizer(folder)
    assert tokenizer is not None and tokenizer.chat is None
    assert "chat template is not read" in tokenizer.notes[-1] and said in tokenizer.notes[-1]


def test_names_of_special_tokens_that_are_no_unicode_name_none(tmp_path: Path) -> None:
    folder = directory(tmp_path / "m")
    (folder / "tokenizer_config.json").write_text(
        r'{"bos_token": "\udfff", "chat_template": "{{ bos_token }}"}', encoding="utf-8"
    )
    tokenizer = find_tokenizer(folder)
    assert tokenizer is not None and tokenizer.chat is not None
    with pytest.raises(BadInput, match="not Unicode"):
        tokenizer.encode("\udfff")
    with pytest.raises(BadInput) as caught:
        rendered(tokenizer.chat, CHATS["one"])
    assert "half of a character" in caught.value.got
