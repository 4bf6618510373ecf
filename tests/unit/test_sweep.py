"""A sweep: its table against a slow loop over `lab.open(...).compute(...)`, killed at any write, and read by pandas."""

from __future__ import annotations

import csv
import itertools
import json
import os
import platform
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import circuitlab.api as lab
from circuitlab.analysis.base import NullContext
from circuitlab.cli.parser import main
from circuitlab.engine.engine import GIB
from circuitlab.errors import BadInput, CircuitLabError, UsageError
from circuitlab.sweep.journal import Journal
from circuitlab.sweep.run import crew_of, run
from circuitlab.sweep.spec import spec_of
from circuitlab.sweep.work import Machine
from tests.killing import killed_before
from tests.models import CONFIGS, directory

MACHINE = Machine(GIB)
TEXTS = ["abcabc", "xyz xyz xyz", "q", "the cat sat on the mat"]
LONG = "too long " * 40  # for the 48 tokens of the context


def declared(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    """Two models × two interventions × (a text analysis, and one of weights)."""
    for name in ("attention-only", "gpt2"):
        if not (tmp_path / name).exists():
            directory(tmp_path / name, CONFIGS[name])
    return {
        "title": "a try",
        "models": {"open": ["attention-only", "gpt2"]},
        "prompts": [{"texts": TEXTS}],
        "analyses": [{"name": "token_loss"}, {"name": "direct_attribution"}, {"name": "ov_spectrum"}],
        "edits": [{"name": "cut", "cut": ["L0H2"]}],
    } | changes


def swept(tmp_path: Path, data: dict[str, Any], out: str = "out", **options: Any) -> pd.DataFrame:
    run(spec_of(data, tmp_path), tmp_path / out, MACHINE, **options)
    return lab.Sweep(tmp_path / out).to_pandas()


def test_every_number_is_that_of_a_slow_loop(tmp_path: Path) -> None:
    table = swept(tmp_path, declared(tmp_path))
    assert set(table["status"]) == {"done"}
    for name in ("attention-only", "gpt2"):
        model = lab.open(str(tmp_path / name))
        for cut, edit in (("", ""), ("L0H2", "cut")):
            rows = table[(table["model"] == name) & (table["edit"].fillna("") == edit)]
            for i, text in enumerate(TEXTS, 1):
                own = rows[rows["prompt"] == i]
                loss = model.compute("token_loss", text=text, cut=cut, fresh=True).result
                mean = own[own["metric"] == "mean_loss"]
                assert mean["value"].item() == pytest.approx(np.nanmean(loss.loss.astype(np.float64)), rel=1e-6)
                assert mean["weight"].item() == len(loss.loss) - 1 and mean["unit"].item() == "nats"
                direct = model.compute("direct_attribution", text=text, cut=cut, fresh=True).result.across()["heads"]
                result = own[own["metric"] == "heads"].set_index(["layer", "head"])["value"]
                for (layer, head), value in np.ndenumerate(direct):
                    assert np.float32(result[layer, head]) == value
        weights = table[(table["model"] == name) & (table["analysis"] == "ov_spectrum")]
        assert weights["edit"].isna().all() and weights["prompt"].isna().all() and len(weights)


def torn(act: Callable[[], object], rng: random.Random) -> Callable[[], None]:
    """`act`, killed in the middle of a line of the journal, where it writes that many."""

    def acting() -> None:
        left = [rng.randrange(1, 12)]

        def write(journal: Journal, raw: bytes) -> None:
            left[0] -= 1
            file: Any = journal._file
            file.write(raw if left[0] else raw[: rng.randrange(len(raw) + 1)])
            file.flush()
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)

        Journal._write = write
        act()

    return acting


@pytest.mark.slow
def test_it_is_the_same_after_being_killed_at_any_write(tmp_path: Path) -> None:
    data = declared(tmp_path, arrays=True)
    swept(tmp_path, data, "whole")
    rng, kills = random.Random(3), 0
    act = lambda: run(spec_of(data, tmp_path), tmp_path / "killed", MACHINE)
    for call in itertools.count(1):  # each time a little later, and between two of these in a line of the journal
        kills += killed_before(9_999, torn(act, rng))
        if not killed_before(call, act):
            break
        kills += 1
    assert kills >= 15
    assert (tmp_path / "killed" / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()
    cells = lab.Sweep(tmp_path / "killed").cells()
    for cell in set(cells["cell"]):  # whatever the journal names is there, and the same
        one, other = (lab.Sweep(tmp_path / name).arrays(cell) for name in ("killed", "whole"))
        assert one.keys() == other.keys() and all(
            np.array_equal(one[k], other[k], equal_nan=True) for k in one if one[k].dtype.kind != "U"
        )


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    data = declared(tmp_path)
    swept(tmp_path, data)
    journal = (tmp_path / "out" / "journal.jsonl").read_bytes()
    more = data | {"prompts": [{"texts": [*TEXTS, "one more"]}]}
    table = swept(tmp_path, more)
    grown = (tmp_path / "out" / "journal.jsonl").read_bytes()
    assert grown.startswith(journal)
    assert grown.count(b"\n") - journal.count(b"\n") == 2 * 2 * 2  # models, interventions, analyses of text
    assert len(swept(tmp_path, more)) == len(table)
    assert (tmp_path / "out" / "journal.jsonl").read_bytes() == grown
    assert len(swept(tmp_path, data)) < len(table)  # what is no longer asked for is not in the table


def test_a_torn_line_is_a_cell_that_was_not_done(tmp_path: Path) -> None:
    data = declared(tmp_path)
    swept(tmp_path, data)
    journal, table = tmp_path / "out" / "journal.jsonl", (tmp_path / "out" / "table.csv").read_bytes()
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[:5]) + b"\0\0 rubbish\n" + lines[5][:40])
    swept(tmp_path, data)
    assert (tmp_path / "out" / "table.csv").read_bytes() == table
    assert journal.read_bytes().startswith(b"".join(lines[:5]) + b"\0\0 rubbish\n{")
    assert [raw for raw in journal.read_bytes().splitlines() if not raw.endswith(b"}")] == [b"\0\0 rubbish"]
    cells = [json.loads(raw)["cell"] for raw in journal.read_bytes().splitlines() if raw.startswith(b"{")]
    assert len(cells) == len(set(cells)) == len(lines), "nothing is joined to the line that was torn"


def test_a_prompt_that_is_too_long_refuses_its_own_rows(tmp_path: Path) -> None:
    data = declared(tmp_path, prompts=[{"texts": [TEXTS[0], LONG, TEXTS[1]]}], models={"open": ["gpt2", "not-there"]})
    table = swept(tmp_path, data)
    mine = table[table["model"] == "gpt2"]
    refused = mine[mine["status"] == "refused"]
    assert set(refused["prompt"]) == {2} and len(refused) == 2 * 2 and refused["value"].isna().all()
    assert refused["error"].str.contains("48 tokens").all()
    assert set(mine[mine["status"] == "done"]["prompt"].dropna()) == {1, 3}
    gone = table[table["model"] == "not-there"]
    assert len(gone) and set(gone["status"]) == {"refused"} and gone["error"].notna().all()


@pytest.mark.parametrize(
    "changes, says",
    [
        ({"modles": {}}, "modles"),
        ({"models": {"open": ["gpt2"], "step": 3}}, "step"),
        ({"analyses": [{"name": "token_los"}]}, "token_los"),
        ({"analyses": [{"name": "predictions", "set": {"kk": 3}}]}, "kk"),
        ({"analyses": [{"name": "predictions", "over": {"k": 3}}]}, "over.k"),
        ({"prompts": []}, "token_loss"),
        ({"prompts": [{"texts": ["a"], "set": "b"}]}, "set"),
        ({"prompts": [{"set": "no such set"}]}, "no such set"),
        ({"conventions": {"dtype": "float16"}}, "float16"),
        ({"models": {"open": ["no*"]}}, "no*"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    with pytest.raises((BadInput, UsageError)) as refused:
        swept(tmp_path, declared(tmp_path, **changes))
    error: CircuitLabError = refused.value
    assert says in str(error) and error.expected and error.remedy


def test_the_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("", encoding="utf-8")
    with pytest.raises(UsageError):
        swept(tmp_path, declared(tmp_path))
    assert [one.name for one in (tmp_path / "out").iterdir()] == ["thesis.tex"]


def test_every_row_has_its_cell(tmp_path: Path) -> None:
    table = swept(tmp_path, declared(tmp_path))
    with (tmp_path / "out" / "cells.csv").open(encoding="utf-8", newline="") as file:
        cells = {row["cell"]: row for row in csv.DictReader(file)}
    assert set(table["cell"]) == set(cells)
    for row in cells.values():
        asked = json.loads(row["request"])
        assert asked["analysis"] == row["analysis"] and len(row["weights"]) == 64 and float(row["seconds"]) >= 0
        assert "torch" in row["versions"] and row["device"] == "cpu" and row["threads"] == "1"


def test_the_summary_is_what_pandas_and_over_prompts_say(tmp_path: Path) -> None:
    table = swept(tmp_path, declared(tmp_path, models={"open": ["gpt2"]}))
    summary = lab.Sweep(tmp_path / "out").summary()
    heads = table[(table["metric"] == "heads") & table["edit"].isna()].groupby(["layer", "head"])["value"]
    found = summary[(summary["metric"] == "heads") & summary["edit"].isna()].set_index(["layer", "head"])
    assert (found["n"] == len(TEXTS)).all()
    for name, of in {"mean": heads.mean(), "sd": heads.std(), "se": heads.sem()}.items():
        np.testing.assert_allclose(found[name], of, rtol=1e-12)
    file = tmp_path / "set.tsv"
    file.write_text("".join(f"{text}\n" for text in TEXTS), encoding="utf-8")
    params = {"file": str(file), "analysis": "token_loss"}
    own: Any = lab.open(str(tmp_path / "gpt2")).compute("over_prompts", set=params, fresh=True).result
    loss = summary[(summary["metric"] == "mean_loss") & summary["edit"].isna()]
    assert loss["mean"].item() == pytest.approx(float(own.mean)) and loss["sd"].item() == pytest.approx(float(own.sd))
    assert loss["weighted_by"].item() == "tokens" and loss["unit"].item() == "nats"
    weights = np.array([len(text) for text in TEXTS])  # tokens that are predicted: one a character
    assert loss["se"].item() == pytest.approx(float(own.sd) * np.sqrt((weights**2).sum()) / weights.sum())


def test_parquet_is_the_same_table(tmp_path: Path) -> None:
    long = declared(tmp_path, prompts=[{"texts": [*TEXTS, LONG]}])
    table = swept(tmp_path, long, parquet=True)
    read = pd.read_parquet(tmp_path / "out" / "table.parquet")
    assert list(read.columns) == list(table.columns) and len(read) == len(table)
    for name in ("value", "layer", "prompt", "step"):
        np.testing.assert_array_equal(read[name].astype(float), table[name].astype(float))
    for name in ("model", "metric", "error", "bos"):
        assert (read[name].fillna("") == table[name].fillna("")).all()
    polars = pytest.importorskip("polars")
    means = polars.read_parquet(tmp_path / "out" / "table.parquet").group_by("metric").agg(polars.col("value").mean())
    for metric, value in means.iter_rows():
        of = table["metric"].isna() if metric is None else table["metric"] == metric
        assert value is None or value == pytest.approx(table[of]["value"].mean())


def test_processes_write_the_same_table(tmp_path: Path) -> None:
    data = declared(tmp_path, arrays=True)
    swept(tmp_path, data)
    swept(tmp_path, data, "two", crew=crew_of(MACHINE, workers=2))
    for name in ("table.csv", "summary.csv"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "out" / name).read_bytes()
    workers = set(lab.Sweep(tmp_path / "two").cells()["worker"])
    assert f"{platform.node()}:{os.getpid()}" not in workers and workers


def test_what_it_will_take_is_said_and_nothing_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declared(tmp_path)
    spec = tmp_path / "a.toml"
    spec.write_text(
        '[models]\nopen = ["gpt2"]\n[[prompts]]\n'
        f"texts = {json.dumps([*TEXTS, LONG])}\n"
        '[[analyses]]\nname = "token_loss"\n[[analyses]]\nname = "predictions"\nover.k = [1, 2]\n',
        encoding="utf-8",
    )
    command = ["sweep", str(spec), "-o", str(tmp_path / "out")]
    assert main([*command, "--dry-run"]) == 0 and not (tmp_path / "out").exists()
    said = capsys.readouterr().out
    assert "15 cells; 12 to be answered, 0 questions" in said and "3 refused" in said and "4 ×" in said
    assert "time: about" in said and "memory: " in said
    assert main(command) == 0
    assert "12 done, 3 refused" in capsys.readouterr().out
    assert main([*command, "--dry-run"]) == 0
    assert "0 to be answered, 15 questions" in capsys.readouterr().out
    assert main(["sweep", str(tmp_path / "out"), "--status"]) == 0
    assert "15 questions: 12 done, 3 refused" in capsys.readouterr().out
    assert main(["sweep", str(tmp_path), "--status"]) == BadInput.exit_code


def test_an_interrupt_keeps_what_is_done(tmp_path: Path) -> None:
    data, whole = declared(tmp_path), declared(tmp_path)
    swept(tmp_path, whole, "whole")

    class Interrupted(NullContext):
        def tick(self, done: int, total: int, text: str = "") -> None:
            if done == 7:
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        swept(tmp_path, data, ctx=Interrupted())
    table = lab.Sweep(tmp_path / "out").to_pandas()
    assert 5 <= table[table["status"] == "done"]["cell"].nunique() < 15 and "not yet" in set(table["status"])
    swept(tmp_path, data)
    assert (tmp_path / "out" / "table.csv").read_bytes() == (tmp_path / "whole" / "table.csv").read_bytes()


def test_what_was_refused_is_asked_again_only_when_told(tmp_path: Path) -> None:
    data = declared(tmp_path, analyses=[{"name": "token_loss"}], models={"open": ["gpt2"]})
    small = Machine(1)  # a budget of one byte
    run(spec_of(data, tmp_path), tmp_path / "out", small)
    assert lab.Sweep(tmp_path / "out").cells()["status"].eq("refused").all()
    assert set(swept(tmp_path, data)["status"]) == {"refused"}
    assert set(swept(tmp_path, data, retry=True)["status"]) == {"done"}


def test_a_step_that_is_not_there_leaves_the_final_weights_theirs(tmp_path: Path) -> None:
    data = declared(tmp_path, models={"open": ["gpt2"], "steps": [3, "final"]}, analyses=[{"name": "token_loss"}], edits=[])
    cells = lab.Sweep(tmp_path / "out").cells() if len(swept(tmp_path, data)) else None
    assert cells is not None and cells["final"].tolist() == [False] + [True] * len(TEXTS)
    assert cells["status"].tolist()[0] == "refused" and set(cells["status"][1:]) == {"done"}


def test_conventions_seeds_and_steps_are_axes(tmp_path: Path) -> None:
    data = declared(tmp_path, seeds=[0, 1], models={"open": ["attention-only"], "steps": ["final", 3]})
    data |= {"analyses": [{"name": "token_loss"}, {"name": "head_scores", "set": {"samples": 1, "block": 8}}], "edits": []}
    data |= {"conventions": {"dtype": ["float32", "float64"], "bos": [True, False]}}
    table = swept(tmp_path, data)
    missing = table[table["step"] == 3]
    assert set(missing["status"]) == {"refused"} and "checkpoint" in missing["error"].iloc[0]
    done = table[table["status"] == "done"]
    scores = done[done["analysis"] == "head_scores"]
    assert set(scores["seed"]) == {0, 1} and set(scores["dtype"]) == {"float32", "float64"} and scores["prompt"].isna().all()
    assert scores.groupby("seed")["value"].sum().nunique() == 2
    loss = done[done["analysis"] == "token_loss"]
    assert loss["seed"].isna().all() and set(loss["bos"].astype(str).str.lower()) == {"true", "false"}
    model = lab.open(str(tmp_path / "attention-only"))
    for (bos, dtype), rows in loss.groupby([loss["bos"].astype(str).str.lower() == "true", "dtype"]):
        for i, text in enumerate(TEXTS, 1):
            result = model.compute("token_loss", text=text, bos=bos, conventions=lab.Conventions(dtype=dtype), fresh=True).result
            expected = float(np.nanmean(result.loss)) if result.n_predicted else float("nan")
            assert rows[rows["prompt"] == i]["value"].item() == pytest.approx(expected, rel=1e-12, nan_ok=True)


@pytest.mark.parametrize("split, n", [("lines", 4), ("paragraphs", 2), ("tokens:5", 4)])
def test_a_text_file_is_divided(tmp_path: Path, split: str, n: int) -> None:
    (tmp_path / "novel.txt").write_text("one\ntwo\n\n \nabc\nd\n", encoding="utf-8")
    source = {"file": "novel.txt", "split": split, "name": "novel"}
    table = swept(tmp_path, declared(tmp_path, prompts=[source], models={"open": ["gpt2"]}, analyses=[{"name": "token_loss"}]))
    cells = lab.Sweep(tmp_path / "out").cells()
    assert set(table["prompt"]) == set(range(1, n + 1)) and set(table["prompts"]) == {"novel"}
    if split == "tokens:5":
        assert set(cells["tokens"]) == {5} and "".join(cells[cells["edit"].isna()]["text"]) == "one\ntwo\n\n \nabc\nd"


def test_a_prompt_set_measures_its_answers(tmp_path: Path) -> None:
    (tmp_path / "set.tsv").write_text("abcabc\ta\tb\nxyz xyz\tx\n", encoding="utf-8")
    data = declared(tmp_path, prompts=[{"set": "set.tsv"}], models={"open": ["gpt2"]}, analyses=[{"name": "direct_attribution"}])
    table = swept(tmp_path, data)
    model = lab.open(str(tmp_path / "gpt2"))
    a, b = (model.tokens(letter, bos=False)[0] for letter in "ab")
    own = model.compute("direct_attribution", text="abcabc", target=lab.Target((a, b)), position=-1, fresh=True).result
    rows = table[(table["prompt"] == 1) & (table["metric"] == "heads") & table["edit"].isna()]
    np.testing.assert_array_equal(rows["value"].to_numpy(np.float32), own.across()["heads"].ravel())


def test_interventions_are_words(tmp_path: Path) -> None:
    words = "scale z L1H1 by 0.5; zero z L0H2 @-1"
    data = declared(tmp_path, edits=[{"name": "words", "edit": [words]}, {"edit": ["zero z L0H0 @9"]}], plain=False)
    table = swept(tmp_path, data | {"models": {"open": ["gpt2"]}, "analyses": [{"name": "token_loss"}]})
    model = lab.open(str(tmp_path / "gpt2"))
    for i, text in enumerate(TEXTS, 1):
        result = model.compute("token_loss", text=text, edits=words, fresh=True).result
        own = table[(table["edit"] == "words") & (table["prompt"] == i)]
        assert own["value"].item() == pytest.approx(result.mean, rel=1e-12)
    other = table[table["edit"] == "zero z L0H0 @9"].set_index("prompt")
    assert list(other["status"]) == ["refused", "done", "refused", "done"]  # of 7, 12, 2 and 23 tokens
    with pytest.raises(UsageError):
        swept(tmp_path, data | {"edits": [{"edit": ["zero zz L0H0"]}]}, "other")


def test_attention_and_predictions_go_over_prompts(tmp_path: Path) -> None:
    analyses = [{"name": "attention", "set": {"heads": "L1H3,L0H2"}}, {"name": "predictions", "set": {"position": 0}}]
    table = swept(tmp_path, declared(tmp_path, analyses=analyses, models={"open": ["gpt2"]}, edits=[]))
    model = lab.open(str(tmp_path / "gpt2"))
    for i, text in enumerate(TEXTS, 1):
        own = table[table["prompt"] == i]
        pattern = model.compute("attention", text=text, heads="L1H3,L0H2", fresh=True).result.values.astype(np.float64)
        n = pattern.shape[1]
        for h, (layer, head) in enumerate([(1, 3), (0, 2)]):
            found = own[(own["layer"] == layer) & (own["head"] == head)].set_index("metric")["value"]
            first, previous, itself = [], [], []
            for dest in range(n):
                itself.append(pattern[h, dest, dest])
                if dest:
                    first.append(pattern[h, dest, 0])
                    previous.append(pattern[h, dest, dest - 1])
            for name, values in {"to_first": first, "to_previous": previous, "to_itself": itself}.items():
                assert found[name] == pytest.approx(np.mean(values), rel=1e-12)
        result = model.compute("predictions", text=text, position=0, fresh=True).result
        found = own[own["analysis"] == "predictions"].set_index("metric")["value"]
        assert found["actual_rank"] == result.actual_rank and found["entropy"] == result.entropy
        assert found["largest_log_prob"] == result.log_probs[0] and found["actual_log_prob"] == result.actual_log_prob


def test_what_is_declared_stands_before_what_a_line_says(tmp_path: Path) -> None:
    (tmp_path / "set.tsv").write_text("abcabc\ta\tb\n", encoding="utf-8")
    analyses = [{"name": "direct_attribution", "set": {"position": 2}}]
    data = declared(tmp_path, prompts=[{"set": "set.tsv"}], models={"open": ["gpt2"]}, analyses=analyses, edits=[])
    table = swept(tmp_path, data)
    model = lab.open(str(tmp_path / "gpt2"))
    a, b = (model.tokens(letter, bos=False)[0] for letter in "ab")
    own = model.compute("direct_attribution", text="abcabc", target=lab.Target((a, b)), position=2, fresh=True).result
    rows = table[table["metric"] == "heads"]
    np.testing.assert_array_equal(rows["value"].to_numpy(np.float32), own.across()["heads"].ravel())
