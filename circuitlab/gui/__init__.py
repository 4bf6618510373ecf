"""The window: document, runner, commands, theme, errors, docks."""
