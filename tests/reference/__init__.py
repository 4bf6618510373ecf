"""Slow, plain re-statements of published definitions, in double precision, to compare with."""
