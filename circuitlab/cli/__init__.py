"""The command line: options, commands, output."""
