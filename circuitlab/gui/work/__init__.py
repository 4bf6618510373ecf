"""The document and the work behind it: commands on the State, requests to the engine, opening models, prefetching."""
