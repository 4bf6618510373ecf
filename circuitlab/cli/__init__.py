"""The command line: what can be asked, what the commands do, what they print."""
