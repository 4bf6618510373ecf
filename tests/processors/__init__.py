"""The tests on processors that round otherwise: a pretended one, and the code paths that libraries keep for older ones."""
