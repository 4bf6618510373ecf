"""`python -m tests.benchmarks`: ratios against a named peer in the same run on the same work. Nothing here is a test."""
