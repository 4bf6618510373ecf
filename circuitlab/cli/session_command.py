"""`circuitlab session FILE`: what is in a session, and whether its models and files are on this machine.

`circuitlab session FILE --results -o OUT` computes what it shows and stores it inside, without a window.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from circuitlab.cli.machine_arguments import engine_of
from circuitlab.cli.output import progress
from circuitlab.counting import number_of
from circuitlab.disk.files import need_writable, write_whole
from circuitlab.disk.formats import SESSION, is_session
from circuitlab.disk.json_types import JsonDict, JsonObject
from circuitlab.engine.engine import Engine, memory_words
from circuitlab.engine.store import ModelStore
from circuitlab.engine.stored_answer import read_stored
from circuitlab.errors import BadInput, UsageError
from circuitlab.figures.contracts.panel import view_types
from circuitlab.lessons.lesson import SUFFIX
from circuitlab.model.origin import Stored
from circuitlab.model.subject import ModelRef
from circuitlab.report.saved_session import SavedSession, opened_session
from circuitlab.session_files.results import Results, file_bytes
from circuitlab.session_files.session import Note, Session
from circuitlab.session_files.session_lock import replacing
from circuitlab.story.arrangements import FRONTS
from circuitlab.story.panel_names import unknown_panels, unread_settings
from circuitlab.story.places import real_folder
from circuitlab.story.story import Story
from circuitlab.story.words import table_of
from circuitlab.terminal import on_one_line

LONGEST = 60  # characters of a prompt or a note on one line


def run(file: str, as_json: bool) -> int:
    """Print it. Raises `BadInput` where the file cannot be read; what is missing is listed, and no error."""
    refuse_lesson(file)
    session = opened_session(Path(file), Engine(ModelStore()))
    table = contents(session)
    print(json.dumps(table, ensure_ascii=False, indent=1) if as_json else "\n".join(_lines(table)))
    return 0


def refuse_lesson(file: str) -> None:
    """Raise `UsageError` for the file of a lesson, which says how it becomes a session."""
    if file.lower().endswith(SUFFIX):
        remedy = f"Make it a session: circuitlab session {Path(file).name} -o {Path(file).stem}{SESSION}"
        raise UsageError("That is a lesson.", expected=f"a {SESSION} file", got=Path(file).name, remedy=remedy)


def write_results(args: argparse.Namespace) -> int:
    """Write a session with the results of everything that it shows. What cannot be is listed; a step without any is an error.

    Raises `BadInput`, `UsageError`.
    """
    file, out = Path(args.file), args.out
    if out is None or not is_session(Path(out)):
        expected, got = f"--results -o OUT{SESSION}", out or "no -o"
        raise UsageError("A session with results needs a file.", expected=expected, got=got, remedy=f"Add -o OUT{SESSION}.")
    need_writable(Path(out))
    session = opened_session(file, engine_of(args))
    with replacing(Path(out)):
        with progress(f"results of {file.name}") as ctx:
            computed = session.with_results(FRONTS, ctx)
        assert computed.results is not None
        lines = (f"{out}:", *_results_lines(results_table(computed.results)), *_changed(session.results, computed.results))
        write_whole(Path(out), file_bytes(computed.session, real_folder(Path(out)), computed.results), named=True)
    print("\n".join(map(on_one_line, lines)))
    return _tell_empty(computed.session.story, computed.results)


def _tell_empty(story: Story, results: Results) -> int:
    """Name the steps of which nothing could be stored on standard error. Returns the status."""
    empty = [(i, place.lacking[0]) for i, place in enumerate(results.places) if i and place.lacking and not place.answers]
    for i, why in empty:
        print(on_one_line(f"Step {i}, {story.steps[i - 1].title}: nothing of it is stored: {why}"), file=sys.stderr)
    return BadInput.exit_code if empty else 0


def _changed(before: Results | None, now: Results) -> Iterator[str]:
    """How many of the answers that were stored before are other ones now."""
    same = [key for key in now.entries if before is not None and key in before.entries]
    changed = [key for key in same if before is not None and _fingerprint(before, key) != _fingerprint(now, key)]
    if changed:
        names = ", ".join(dict.fromkeys(now.entries[key].analysis for key in changed))
        yield f"  {len(changed)} of {number_of(len(same), 'answer')} that were stored differ from those computed now: {names}"


def _fingerprint(results: Results, key: str) -> str:
    """That of an answer, "" where it is damaged."""
    try:
        return read_stored(results.data(key), ModelRef.of(Stored(""))).fingerprint
    except BadInput:
        return ""


def results_table(results: Results) -> dict[str, object]:
    """What is stored in a session's file, as plain values: how much in all, and of each place."""
    place = lambda one: {
        "answers": len(one.answers),
        "bytes": sum(map(results.size, one.answers)),
        "lacking": list(one.lacking),
    }
    return {
        "answers": len(results.entries),
        "bytes": results.nbytes,
        "models": sorted(results.hashes),
        "places": [place(one) for one in results.places],
    }


def _results_lines(table: JsonObject) -> list[str]:
    models = ", ".join(table["models"]) or "no model"
    lines = [f"  results: {number_of(table['answers'], 'answer')} of {models}, {memory_words(table['bytes'])}"]
    for name, sha256 in table.get("of_other_weights", {}).items():
        lines.append(f"    those of {name} are of other weights, sha256 {sha256[:12]}, and are not shown")
    lines += [f"    damaged, and not shown: {line}" for line in table.get("damaged", ())]
    if table.get("damaged"):
        lines.append("    where the model is, they are stored anew by: circuitlab session FILE --results -o OUT.circuitlab")
    for i, place in enumerate(table["places"]):
        name = f"step {i}" if i else "now"
        lines.append(f"    {name}: {number_of(place['answers'], 'answer')}, {memory_words(place['bytes'])}")
        lines += [f"      not stored: {why}" for why in place["lacking"]]
    return lines


def contents(session: SavedSession) -> dict[str, object]:
    """What is in a session, as plain values: models and files with what was found of them, now, steps, notes."""
    located, content = session.located, session.session
    models = {}
    for name, entry in content.models.items():
        status = "missing" if name in located.missing else "changed" if name in located.changed else "found"
        models[name] = {"source": entry.ref.source, "sha256": entry.sha256, "status": status}
        models[name] |= {"settings": entry.settings} if entry.settings else {}
        if name in located.changed:
            models[name]["other"] = located.changed[name].source
            models[name] |= {"same_weights": True} if name in located.resettled else {}
    files = {}
    for name, entry in content.files.items():
        status = "missing" if name in located.missing_files else "changed" if name in located.changed_files else "found"
        files[name] = {"path": entry.path, "sha256": entry.sha256, "status": status}
    steps = [{"title": step.title, "set": table_of(step.setup) if step.setup else {}} for step in content.story.steps]
    others = {"of_other_weights": session.of_other_weights} if session.of_other_weights else {}
    others |= {"damaged": session.damaged} if session.damaged else {}
    stored = {} if session.results is None else {"results": results_table(session.results) | others}
    return {
        "file": session.name,
        "title": session.title,
        "models": models,
        "files": files,
        "now": table_of(content.now),
        "steps": steps,
        "notes": [{"about": _about(note), "text": note.text} for note in session.notes],
        **_unfollowed(content),
        **stored,
    }


def _unfollowed(content: Session) -> dict[str, JsonDict]:
    """The names of panels that there are not, and why settings of panels cannot be read, by place; empty where there are none."""
    steps = {str(i): step.setup for i, step in enumerate(content.story.steps, 1) if step.setup is not None}
    places, every = {"now": content.now} | steps, view_types()
    unknown = {where: list(names) for where, setup in places.items() if (names := unknown_panels(setup, every))}
    unread = {where: why for where, setup in places.items() if (why := unread_settings(setup, every))}
    return {name: at for name, at in (("no_such_panels", unknown), ("unread_settings", unread)) if at}


def _about(note: Note) -> str:
    """What a note is about: a head, two heads, a token or a panel; "" for the session."""
    token = "" if note.token is None else f"token {note.token!r}"
    about = note.head or " → ".join(note.edge or ()) or token or note.panel
    return f"{about} of {note.model}" if about and note.model else about


def _lines(table: JsonObject) -> list[str]:
    counted = f"{number_of(len(table['steps']), 'step')}, {number_of(len(table['notes']), 'note')}"
    lines = [f"{table['file']}: {table['title'] or 'no title'} ({counted})"]
    words = {"found": "found", "missing": "not found", "changed": "has changed"}
    for name, model in table["models"].items():
        what = "another configuration or tokenizer of the same weights" if "same_weights" in model else "other weights"
        other = f": {what} at {model['other']}" if "other" in model else ""
        sha256 = model["sha256"][:12] or "not stated"
        lines.append(f"  model {name}: {words[model['status']]}{other or ' at ' + model['source']}, sha256 {sha256}")
    for name, file in table["files"].items():
        lines.append(f"  file {name}: {words[file['status']]} at {file['path']}")
    lines += [f"  now: {_summary(table['now'])}", *_unfollowed_lines(table, "now")]
    for i, step in enumerate(table["steps"], 1):
        lines += [f"  {i}  {step['title'] or 'no title'}: {_summary(step['set'])}", *_unfollowed_lines(table, str(i))]
    lines += [f"  note on {note['about'] or 'the session'}: {_short(note['text'])}" for note in table["notes"]]
    lines += _results_lines(table["results"]) if "results" in table else []
    return [on_one_line(line) for line in lines]


def _unfollowed_lines(table: JsonObject, where: str) -> list[str]:
    names = table.get("no_such_panels", {}).get(where, [])
    settings = table.get("unread_settings", {}).get(where, {})
    lines = [f"     no such panel: {', '.join(names)}"] if names else []
    return lines + [f"     settings of {name} cannot be read: {why}" for name, why in settings.items()]


def _summary(words: Mapping[str, object]) -> str:
    """The words of a step on one line, those that are long by their name alone."""
    parts = []
    for name, value in words.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        parts.append(f"{name} {_short(text)}")
    return ", ".join(parts) or "text only"


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
