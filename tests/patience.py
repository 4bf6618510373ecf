"""How long a test waits for what must come: one patience for all of them, which only a test that fails uses up.

No test measures time: what waits for a thread, a process or a signal waits this long, on a machine that others use too. The waits
of `qtbot` do so by themselves (`tests/conftest.py`); none names a time of its own.
"""

SECONDS = 240.0
