"""The window: menus, bars, dialogs, commands, where docks stand."""
