"""Checkpoints that are not in the wheel: their archives, which are listed in `models/archives.json`, and getting one."""
