"""A finished run as a folder that ships: a chosen part of its weights, all its measures, and a card with its tokens counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from circuitlab.cli.parser import main
from circuitlab.model.loading import open_model
from circuitlab.model.records.corpus_bigrams import corpus_of
from circuitlab.model.records.series import series_of
from circuitlab.model.records.series_measures import GONE, read_series
from circuitlab.model.subject import ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training import shipping
from circuitlab.training.corpus import Stream
from circuitlab.training.token_counts import HEADING, describe_tokens, section, shares_of, words_split
from tests.training_runs import written


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / "mine"
    text = written(out.parent / "text.txt")
    assert main(["train", "tiny", "--text", str(text), "--out", str(out)]) == 0
    return out


def test_chosen_weights_go_and_all_measures_stay(run: Path, tmp_path: Path) -> None:
    made, text = tmp_path / "attn-only-9l", str(run.parent / "text.txt")
    words = [str(run), str(made), "--text", text, "--steps", "0", "14", "--half", "--bigrams", "--recipe", "tiny"]
    assert shipping.main(words) == 0
    whole, part = read_series(run / "model"), read_series(made)
    assert [step for step, _ in series_of(made)] == [0, 14]
    assert part.steps == whole.steps == (0, 4, 8, 14, 16, 18, 20) and part.tokens == whole.tokens
    assert part.checkpoints == (0, GONE, GONE, 1, GONE, GONE, None)
    for name, measured in whole.arrays.items():  # of the final weights by what float16 rounds
        np.testing.assert_array_equal(part[name][:-1], measured[:-1])
        np.testing.assert_allclose(part[name][-1], measured[-1], atol=2e-2)
    assert part.protocol["weights"][:-1] == whole.protocol["weights"][:-1] != part.protocol["weights"]
    final = load_file(made / "model.safetensors")
    assert {x.dtype for x in final.values()} == {np.dtype(np.float16)}
    assert all(np.array_equal(final[k], v.astype(np.float16)) for k, v in load_file(run / "model" / "model.safetensors").items())
    assert (made / "tokenizer.json").read_bytes() == (run / "state" / "tokenizer.json").read_bytes()
    assert corpus_of(ModelRef(f"file:{made}"), open_model(made).weights.config) is not None
    card = (made / "card.md").read_text(encoding="utf-8")
    assert card.startswith("# attn-only-9l\n") and card.index("## Text") < card.index(HEADING) < card.index("## Training")
    assert "the weights of 2 earlier steps in float16, those of 4 others were not kept" in " ".join(card.split())
    assert shipping.main(words) == 0, "once more"
    assert (made / "card.md").read_text(encoding="utf-8") == card and read_series(made).checkpoints == part.checkpoints


def test_a_run_of_other_texts_is_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = str(run.parent / "text.txt")
    assert shipping.main([str(run), str(tmp_path / "made"), "--text", f"{text}:0.5", f"{text}:0.5"]) == 3
    assert "other texts" in capsys.readouterr().err


def test_tokens_are_counted_as_training_draws_them(run: Path, tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_file(run / "state" / "tokenizer.json")
    ids = lambda text: np.array(tokenizer.encode(text), dtype=np.uint16)
    common, rare = ids("the"), ids("heron")
    streams = Stream("a", 0.75, np.tile(common, 9), ids("the the")), Stream("b", 0.25, np.tile(rare, 3), ids("heron"))
    shares = shares_of(streams, tokenizer.n_tokens)
    slow = np.zeros(tokenizer.n_tokens)
    for stream in streams:
        for i in stream.train.tolist():
            slow[i] += stream.share / len(stream.train)
    np.testing.assert_allclose(shares, slow)
    pieces = tokenizer.encode("the heron, the9 x1y")
    texts, split, words = [tokenizer.decode((i,)) for i in pieces], 0, 0
    for word in ("the", " heron", " the", " x", "y"):
        words, split = words + 1, split + (len(tokenizer.encode(word)) > 1)
    assert words_split(tokenizer, np.array(pieces)) == (split, words), texts
    said = section(streams, tokenizer, 12)
    assert "12 lines in long tables" in said and said.index("`the`" if "the" in texts else "`") > 0
    (tmp_path / "card.md").write_text("# x\n\n## Text\n\nWords.\n\n## Training\n\nMore.\n")
    for _ in range(2):
        describe_tokens(tmp_path, said)
    assert (tmp_path / "card.md").read_text(encoding="utf-8") == f"# x\n\n## Text\n\nWords.\n\n{said}\n## Training\n\nMore.\n"
