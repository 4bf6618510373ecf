"""A recipe that cannot be is refused before anything is made, with the key, what it takes and what came."""

from __future__ import annotations

from pathlib import Path

import pytest

from circuitlab.errors import BadInput
from circuitlab.paths import resource, shipped_recipes
from circuitlab.training.recipe_file import read_recipe


def recipe_file(tmp_path: Path, old: str, new: str) -> str:
    shipped = resource("recipes", "tiny.toml").read_text(encoding="utf-8")
    assert old in shipped
    (tmp_path / "mine.toml").write_text(shipped.replace(old, new, 1), encoding="utf-8")
    return str(tmp_path / "mine.toml")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("n_heads = 2", "n_heads = 0", "n_heads is not a size"),
        ("n_heads = 2", "n_heads = 2.0", "n_heads is not a size"),
        ("n_heads = 2", "n_haeds = 2", "n_haeds"),
        ("n_heads = 2", "n_heads = 2\nn_ctx = 9", "follows from the rest"),
        ("d_model = 16", "d_model = 15", "even d_model"),
        ('positions = "shortformer"', 'positions = "far"', "positions"),
        ("rate = 3e-3", "rate = -3e-3", "[optimiser] rate"),
        ("rate = 3e-3", "rate = nan", "[optimiser] rate"),
        ("rate = 3e-3", "rate = inf", "[optimiser] rate"),
        ("rate = 3e-3", 'rate = "fast"', "[optimiser] rate"),
        ("rate = 3e-3", "betas = [0.9, 1.0]", "[optimiser] betas"),
        ("rate = 3e-3", "betas = 0.9", "[optimiser] betas"),
        ("rate = 3e-3", "clip = 0", "[optimiser] clip"),
        ("rate = 3e-3", "weight_decay = -1", "[optimiser] weight_decay"),
        ("steps = 20", "steps = 0", "[optimiser] steps"),
        ("steps = 20", "steps = true", "[optimiser] steps"),
        ("W_E = 0.1", "W_E = nan", "[init] W_E"),
        ("W_E = 0.1", "W_X = 0.1", "[init] W_X"),
        ("first = 4", "first = 0", "[checkpoints] first"),
        ("every = 2", "every = 0", "[checkpoints] every"),
        ("band = [14, 18]", "band = [18, 14]", "[checkpoints] band"),
        ("random_repeat = 0.25", "random_repeat = 1.5", "[data] random_repeat"),
        ("block = [4, 11]", "block = [0, 11]", "[data] block"),
        ("block = [4, 11]", "block = [12, 15]", "does not fit"),
        ("context = 24", "context = 0", "[stages] context"),
        ("batch = 4", "batch = 0", "[stages] batch"),
        ("batch = 4", "batch = 100000000", "too large for a step"),
        ("start = 12", "start = 0", "each start once"),
        ("seed = 3", "seed = -1", "seed"),
        ("seed = 3", f"seed = {2**63}", "seed"),
        ("vocab = 300", "vocab = 4096000000", "1,000,000"),
        ("seed = 3", f"seed = {'9' * 5000}", "is not TOML"),
        ("rate = 3e-3", f"rate = 1{'0' * 400}", "[optimiser] rate"),
        ("seed = 3", "seed = 3\npositions_amplitude = inf", "positions_amplitude"),
        ("seed = 3", "seed = 3\nexport = 3", "not a table"),
        ("seed = 3", "seed = 3\nnotes = 'x'", "notes"),
        ("[init]", '[export]\nformat = "onnx"\n[init]', "[export] format"),
        ("[init]", '[export]\nformat = "gpt2"\n[init]', "not a GPT-2"),
    ],
)
def test_a_recipe_of_nonsense_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(BadInput) as raised:
        read_recipe(recipe_file(tmp_path, old, new))
    assert said in str(raised.value)


def test_the_shipped_recipes_are_possible() -> None:
    for name in shipped_recipes():
        assert read_recipe(name).config().n_ctx == max(s.context for s in read_recipe(name).stages)
