"""Tokens, targets and positions by their text; tokens of a text; generated text; activations by name: against slow loops."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from circuitlab import api
from circuitlab.analysis.behaviour.activations import activations
from circuitlab.cli.parser import main
from circuitlab.engine.engine import Engine
from circuitlab.engine.store import ModelStore
from circuitlab.errors import BadInput, CircuitLabError, OverBudget, UsageError
from circuitlab.model.forward import forward
from circuitlab.model.intervention import Intervention, Site
from circuitlab.model.run import NAMES
from circuitlab.model.subject import Conventions, Target
from tests.models import CONFIGS, directory
from tests.reference.slow_forward import SlowModel

TEXT = "the cat saw the dog"


@pytest.fixture(scope="module", params=["attention-only", "llama"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> api.Model:
    folder = directory(tmp_path_factory.mktemp("m"), CONFIGS[request.param])
    return api.open(str(folder), use=Engine(ModelStore()), raw=True)


def weights_of(model: api.Model) -> object:
    return model.engine.store.open(model.ref).weights(Conventions(False, False))


def test_targets_tokens_and_positions_by_text(model: api.Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    a, b = (model.tokens(t, bos=False)[0] for t in "ab")
    ask = lambda target: model.compute("direct_attribution", text=TEXT, target=target, position='"saw"').result
    wanted = model.compute("direct_attribution", text=TEXT, target=Target((a, b)), position=TEXT.index("saw") + 3).result
    for words in ('"a" - "b"', f'"a" - {b}', f"{a}-{b}", 'logit of "a" minus "b"', " logit of 'a' minus 'b'"):
        np.testing.assert_array_equal(ask(words).heads, wanted.heads)
        assert model.state(TEXT, target=words).selection.target == Target((a, b))
    assert model.state(TEXT, target='"-"').selection.target == Target(model.tokens("-", bos=False))
    by_id = model.compute("bigram", token=a).result
    np.testing.assert_array_equal(model.compute("bigram", token='"a"').result.arrays()["ids"], by_id.arrays()["ids"])
    for words in ('"two tokens"', '"a" - "b" - "a"', 'log of "a"', '"a" plus "b"', '"a\\q"'):
        with pytest.raises(CircuitLabError):
            ask(words)
    folder, out = model.ref.source.removeprefix("file:"), str(tmp_path / "a.npz")
    command = ["compute", "direct_attribution", folder, "--raw", "--text", TEXT, "--npz", out, "--set"]
    assert main([*command, 'target="a" - "b"', 'position="saw"']) == 0
    np.testing.assert_array_equal(np.load(out)["heads"], wanted.heads)
    assert main([*command, 'target="two tokens"']) == 3 and main([*command, 'target="a" plus "b"']) == 2
    assert main(["figure", "predictions", "./no-such", "--target", '"a" plus', "-o", "a.svg"]) == 2
    capsys.readouterr()


def test_the_tokens_of_a_text(model: api.Model, capsys: pytest.CaptureFixture[str]) -> None:
    text = "ab  cd\ne"
    found = model.tokenized(text)
    assert found.ids == model.tokens(text)
    assert "".join(t.piece for t in found.tokens[1:]) == "ab··cd↵e"
    assert [(t.position, t.word) for t in found.tokens[:4]] == [(0, None), (1, 0), (2, 0), (3, 1)]
    assert [w for w in found.words if w] == text.split()
    assert model.decode(found.ids, special=False) == text and model.decode(np.array(found.ids[1:3])) == "ab"
    with pytest.raises(BadInput):
        model.decode([10**6])
    folder = model.ref.source.removeprefix("file:")
    assert main(["tokens", folder, "--text", text, "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [row["id"] for row in said["tokens"]] == list(found.ids) and said["words"] == list(found.words)
    assert main(["tokens", folder, "--text", text, "--no-bos"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2 + len(found.ids) - 1 and lines[1].split() == ["position", "id", "piece", "word"]
    assert main(["tokens", folder]) == 2


def slow_greedy(model: api.Model, n: int, edits: tuple[Intervention, ...] = ()) -> tuple[int, ...]:
    ids = model.tokens(TEXT)
    for _ in range(n):
        ids = (*ids, int(forward(weights_of(model), ids, edits).logits()[-1].argmax()))  # type: ignore[arg-type]
    return ids


def test_generation_is_a_loop_over_forward_passes(model: api.Model) -> None:
    n = len(model.tokens(TEXT))
    found = model.generate(TEXT, n=6)
    assert (*found.prompt, *found.new) == slow_greedy(model, 6) and found.text == model.decode(found.new) == str(found)
    cut = (Intervention("zero", Site("z", 1)),)
    assert model.generate(TEXT, n=6, edits="zero z L1").new == slow_greedy(model, 6, cut)[n:] != found.new
    rng, ids = np.random.default_rng(3), list(model.tokens(TEXT))
    for _ in range(6):
        logits = forward(weights_of(model), tuple(ids)).logits()[-1].double() / 1.5  # type: ignore[arg-type]
        ids.append(int((logits.softmax(0).cumsum(0) <= rng.random()).sum()))
    sampled = model.generate(TEXT, n=6, temperature=1.5, seed=3)
    assert list(sampled.new) == ids[n:] and model.generate(TEXT, n=6, temperature=1.5, seed=3) == sampled
    assert len({model.generate(TEXT, n=6, temperature=1.5, seed=s).new for s in range(4)}) > 1
    assert len(model.generate(TEXT, n=10**6).new) == model.config.n_ctx - n and model.generate(TEXT, n=0).new == ()
    last = model.compute("predictions", tokens=sampled.prompt + sampled.new[:-1])
    assert last.provenance.reused == 0 or last.provenance.reused >= n, "a step goes on from the one before"
    for wrong in ({"n": -1}, {"temperature": -1.0}, {"temperature": float("nan")}, {"seed": 0.5}):
        with pytest.raises(UsageError):
            model.generate(TEXT, **wrong)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        model.generate()


def test_activations_by_name_are_those_of_the_forward_pass(model: api.Model) -> None:
    edit = Intervention("scale", Site("z", 0, (1,)), (0.5,))
    acts, run = model.run(TEXT, edits="scale z L0H1 by 0.5"), forward(weights_of(model), model.tokens(TEXT), (edit,))  # type: ignore[arg-type]
    n = run.n
    hidden = np.triu(np.ones((n, n), bool), 1)
    assert set(acts) == {
        f"layers.{i}.{name}" for i in range(2) for name in NAMES if "mlp" not in name or not model.config.attention_only
    } | {
        "logits",
        "log_probs",
    }
    for name in acts:
        found = acts[name]
        assert not found.flags.writeable and len(acts.axes(name)) == found.ndim, name
        if name in ("logits", "log_probs"):
            wanted = getattr(run, name)()
        else:
            _, layer, kind = name.split(".")
            wanted = run.get(kind, int(layer))
        params = acts.answer(name).request.params
        assert activations.memory(model.config, n, params) >= found.nbytes, "what is returned is estimated"
        wanted = wanted.numpy().reshape(found.shape)
        if name.endswith(("scores", "pattern")):
            assert np.isnan(found[:, hidden]).all()
            found, wanted = found[:, ~hidden], wanted[:, ~hidden]
        np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=name)
    for wrong in ("z", "layers.2.z", "layers.0.nothing", "layers.0", 3):
        with pytest.raises(UsageError):
            acts[wrong]  # type: ignore[index]
    assert acts.answer("layers.1.z").result.axes == ("head", "position", "d_head")


def test_patterns_are_those_of_a_slow_model(tmp_path: Path) -> None:
    from safetensors.numpy import load_file

    folder = directory(tmp_path / "m")
    model = api.open(str(folder), use=Engine(ModelStore()))
    slow = SlowModel(model.config, load_file(folder / "model.safetensors")).run(model.tokens(TEXT))[2]
    np.testing.assert_allclose(np.nan_to_num(model.run(TEXT)["layers.1.pattern"]), np.array(slow[1]), atol=1e-5)


@pytest.mark.parametrize("name", ["resid_pre", "k", "z", "result", "pattern", "attn_norm_scale", "logits"])
def test_an_activation_is_written_like_any_answer(model: api.Model, name: str, tmp_path: Path) -> None:
    answer = model.compute("activations", text="a b", name=name, layer=1)
    values = answer.result.values
    frame = answer.to_pandas("values")
    assert len(frame) == values.size and answer.result.table().n_rows == values.size
    np.testing.assert_array_equal(answer.result.table().columns[-1].values, values.ravel())
    for suffix in ("csv", "json", "npz"):
        api.save(answer, tmp_path / f"a.{suffix}")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npz")["values"], values)
    assert repr(answer) and answer._repr_html_()


def test_what_does_not_fit_is_refused_before_it_runs(tmp_path: Path) -> None:
    model = api.open(str(directory(tmp_path / "m")), use=Engine(ModelStore()), budget=1e-5)
    with pytest.raises(OverBudget):
        model.run(TEXT)["layers.1.pattern"]


def test_several_prompts_are_answered_in_their_order(model: api.Model) -> None:
    prompts = [TEXT, "a b", model.tokens("a dog")]
    result = model.compute_each("token_loss", prompts, cut="L1H1")
    for prompt, answer in zip(prompts, result, strict=True):
        of = {"text": prompt} if isinstance(prompt, str) else {"tokens": prompt}
        np.testing.assert_array_equal(answer.result.loss, model.compute("token_loss", **of, cut="L1H1").result.loss)  # type: ignore[arg-type]
    assert len({len(a.result.loss) for a in result}) == 3
    with pytest.raises(BadInput, match="Prompt 1"):
        model.compute_each("token_loss", ["a", [10**6]])
