"""What a model can be seen to do: copying, names, induction on text, in-context learning, heads; one table for any models.

    circuitlab witnesses attn-only-1l attn-only-2l
    circuitlab witnesses MODEL --text corpus/en_novels:0.6 corpus/en_classics:0.4 --card

Every number is an answer of the engine, on the shipped prompt sets (`prompt_sets.py`), on held-out prose (`prose.py`) or on the
weights (`heads.py`); `table.py` puts them in words, `record.py` writes them to `witnesses.json` beside the weights.
"""
