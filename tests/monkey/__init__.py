"""Random events on the whole window, replayable by seed: `python -m tests.monkey` and `make monkey`."""
