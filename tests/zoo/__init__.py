"""Every analysis on every kind of transformer: small random models, references of their own, laws.

- `models`: the models, by a table of features. `forward`: a forward pass in numpy that shares no code with the package.
- `asked`: with which parameters each analysis is asked. `laws`: what holds of every answer. `invariances`: changes of the weights
  that no logit notices, and so no answer may. `references`: answers worked out anew. `known`: what does not hold yet.
- `page`: docs/zoo.md, written anew by `python -m tests.zoo`.
"""
