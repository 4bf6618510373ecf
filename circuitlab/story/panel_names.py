"""The panels that the words of a step name, and what of these words cannot be followed, being of another version or misspelt:
panels that there are not, and settings of panels.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields, replace

from circuitlab.engine.codec import params_of
from circuitlab.errors import BadInput, UsageError, printable, quoted, reason
from circuitlab.model.subject import Head
from circuitlab.story.setup import Setup, Views
from circuitlab.story.story import Story
from circuitlab.story.values import live_controls

DOCKS = ("prompt", "interventions", "jobs", "log", "lessons")  # no panels, but places can name them


def named_panels(setup: Setup) -> tuple[str, ...]:
    """The names of the panels that a place shows, each once; docks that are no panels are left out."""
    named = setup.show[-1:] if setup.alone else setup.show
    return tuple(name for name in dict.fromkeys(named) if name not in DOCKS)


def panels_of_story(now: Setup, story: Story) -> frozenset[str]:
    """The names of all panels that a session shows somewhere or keeps settings of, whether there are such panels or not."""
    each = [now, *(step.setup for step in story.steps if step.setup is not None)]
    return frozenset(name for setup in each for name in (*setup.show, *setup.stage, *setup.view))


def unknown_panels(setup: Setup, every: Collection[str]) -> tuple[str, ...]:
    """The names among those that a place shows of which there is no panel. `every`: the names of those that there are."""
    return tuple(printable(name) for name in named_panels(setup) if name not in every)


def unread_settings(setup: Setup, views: Mapping[str, type[object]]) -> dict[str, str]:
    """Why the settings of a panel that a place shows cannot be read, by the panel's name: it is shown with its own. `views`: the
    type of each panel's settings.
    """
    shown, why = named_panels(setup), dict[str, str]()
    for name, settings in setup.view.items():
        if name in views and (not shown or name in shown):
            try:
                params_of(views[name], live_controls(views[name], settings, lambda _: Head(0, 0)))
            except UsageError as error:
                why[name] = f"{reason(error).rstrip('.')}: {error.got}." if error.got else reason(error)
    return why


def unfollowed(setup: Setup, views: Mapping[str, type[object]]) -> tuple[str, ...]:
    """What of the words about panels cannot be followed, each in a few words."""
    panels = (f"no such panel: {name}" for name in unknown_panels(setup, views))
    settings = (f"not as it is set: {name}. {why}" for name, why in unread_settings(setup, views).items())
    return (*panels, *(words.rstrip(".") for words in settings))


def need_panels(setup: Setup, every: Mapping[str, type[object]]) -> None:
    """Raise `BadInput` where a place shows a panel that there is not, or one whose settings cannot be read."""
    if unknown := unknown_panels(setup, every):
        raise BadInput(
            f"No such panel: {', '.join(unknown)}.",
            expected=" ".join(every),
            got=" ".join(named_panels(setup)),
            remedy="Correct its name in `show`; `circuitlab panels` explains each panel.",
        )
    need_settings(setup, every)


def need_settings(setup: Setup, every: Views, panel: str = "") -> None:
    """Raise `BadInput` where the settings of a panel that a place shows cannot be read; of `panel`, where one is named."""
    shown = replace(setup, show=(panel,), alone=False) if panel else setup
    for name, why in unread_settings(shown, every).items():
        raise BadInput(
            f"The settings of {name} cannot be read. {why}",
            expected=" ".join(field.name for field in fields(every[name])),
            got=quoted(dict(setup.view[name])),
            remedy="Correct them in `view`.",
        )


def need_some_panel(setup: Setup, every: Mapping[str, type[object]]) -> None:
    """Raise `BadInput` where a place names panels, and there is none of them: nothing is shown in their place."""
    if len(unknown_panels(setup, every)) == len(named_panels(setup)):
        need_panels(setup, every)
