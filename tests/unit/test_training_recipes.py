"""A recipe that cannot be is refused before anything is made, with the key, what it takes and what came."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest

from circuitlab.disk.paths import resource, shipped_recipes
from circuitlab.errors import BadInput
from circuitlab.training.family import FAMILY
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
        ("rate = 3e-3", 'rate = 3e-3\nmethod = "sgd"', "[optimiser] method"),
        ("rate = 3e-3", "matrix_rate = 0", "[optimiser] matrix_rate"),
        ("rate = 3e-3", "momentum = 1", "[optimiser] momentum"),
        ("rate = 3e-3", "matrix_decay = -1", "[optimiser] matrix_decay"),
        ("rate = 3e-3", "loss_share = 0", "[optimiser] loss_share"),
        ("rate = 3e-3", "loss_share = 1.5", "[optimiser] loss_share"),
        ("seed = 3", "seed = 3\npositions_angles = [0.1, 1]", "positions_angles"),
        ("seed = 3", "seed = 3\npositions_angles = [4, 1]", "up to π"),
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
        ("batch = 4", "batch = 4\nrepeats = -1", "[stages] repeats"),
        ("batch = 4", "batch = 4\ncounts = 0", "[stages] counts"),
        ("batch = 4", "batch = 4\nrepeats = 2.5", "1.25, and random_repeat 0.625"),
        ("batch = 4", "batch = 4\nrepeats = 5", "random_repeat 1.25"),
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


# -- a recipe that builds on another one -------------------------------------------------------------------------------------


def _written(folder: Path, name: str, text: str) -> str:
    (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    return str(folder / f"{name}.toml")


def test_a_recipe_says_only_what_it_changes(tmp_path: Path) -> None:
    base = read_recipe("tiny")
    mine = _written(tmp_path, "mine", 'base = "tiny"\ntitle = "one layer"\n[model]\nn_layers = 1\n[[stages]]\nstart = 0\n')
    with pytest.raises(BadInput, match="lacks something"):
        read_recipe(mine)  # a list of tables is replaced as a whole
    read = read_recipe(_written(tmp_path, "mine", 'base = "tiny"\ntitle = "one layer"\n[model]\nn_layers = 1\n'))
    assert read == replace(base, name="mine", title="one layer", model={**base.model, "n_layers": 1})
    again = read_recipe(_written(tmp_path, "again", 'base = "mine"\nseed = 9\n[data]\nself_copy = 0.25\n'))
    assert again == replace(read, name="again", seed=9, data=replace(read.data, self_copy=0.25)), "beside it, and two deep"


def test_a_base_that_cannot_be_is_refused(tmp_path: Path) -> None:
    for text, said in [('base = "none"', "no such recipe"), ("base = 3", "base cannot"), ('base = "mine"', "leads back")]:
        with pytest.raises(BadInput, match=said):
            read_recipe(_written(tmp_path, "mine", text))
    _written(tmp_path, "a", 'base = "b"')
    with pytest.raises(BadInput, match="leads back"):
        read_recipe(_written(tmp_path, "b", 'base = "a"'))


def test_the_family_differs_in_its_architecture_alone() -> None:
    base, architecture = read_recipe(FAMILY["attn-only-2l"]), ("name", "title", "model")
    words = lambda recipe: {f.name: getattr(recipe, f.name) for f in fields(recipe)}
    for model, name in FAMILY.items():
        recipe = words(read_recipe(name))
        differing = {key for key, value in words(base).items() if recipe[key] != value} - set(architecture)
        others = {"gpt-mini": {"init", "positions_amplitude", "export"}, "attn-only-2l-plain": {"data"}}
        assert differing == others.get(model, set()), model
