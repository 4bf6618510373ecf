"""Request -> Answer: the store of open models, the cache, the codec of parameters, provenance."""
