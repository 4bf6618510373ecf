"""A declared grid of requests over models, steps, prompts, interventions and parameters, answered into one table, resumably."""
