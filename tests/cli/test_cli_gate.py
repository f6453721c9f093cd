"""Source cards and verdicts, as a person uses them from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch_geometric.nn import GraphSAGE

import graphmend
from graphmend import SourceCard
from graphmend.files.graph_files import load_graph, save_graph
from graphmend.lab.backbones.checkpoint import load_model
from graphmend.lab.data import abnormal_features, embedded, structure_attack
from support.commands import complains, good

pytestmark = pytest.mark.usefixtures("one_thread")

CLEAN, NOISY, DIM, ATTACKED = "clean.npz", "noisy.npz", "dim.npz", "attacked.npz"


def reports(*arguments: str | Path) -> list[dict[str, Any]]:
    return list(json.loads(good(*arguments, "--json").stdout))


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trained checkpoint with its card, and graphs: as in training, and harmed in three ways."""
    folder = tmp_path_factory.mktemp("gate")
    good("train", "--dataset", "digits", "--epochs", "60", "--out", folder / "gcn.safetensors", "-q")
    splits = embedded("digits")
    dim = splits.test[0].clone()
    dim.x = 0.4 * dim.x + 0.4
    save_graph(folder / CLEAN, splits.test[0])
    save_graph(folder / NOISY, abnormal_features(splits).tests[0])
    save_graph(folder / DIM, dim)
    save_graph(folder / ATTACKED, structure_attack(load_model(folder / "gcn.safetensors"), splits).tests[0])
    return folder


def mend(work: Path, *graphs: str) -> list[str | Path]:
    parts: list[str | Path] = ["mend", "--model", work / "gcn.safetensors"]
    for name in graphs:
        parts += ["--graph", work / name]
    return parts


def copied_model(work: Path, folder: Path) -> Path:
    """The checkpoint at another place, without its card."""
    (folder / "gcn.safetensors").write_bytes((work / "gcn.safetensors").read_bytes())
    return folder / "gcn.safetensors"


# cards


def test_train_says_where_the_card_is_and_it_is_that_of_the_model(work: Path, tmp_path: Path) -> None:
    said = good("train", "--dataset", "wine", "--epochs", "5", "--out", tmp_path / "m.safetensors").output
    assert f"\nsource card: {tmp_path / 'm.card.safetensors'}\n" in said
    model, data = load_model(tmp_path / "m.safetensors"), embedded("wine").train[0]
    SourceCard.load(tmp_path / "m.card.safetensors").check(model, data)
    assert "NAME.card.safetensors" in good("train", "--help").output


def test_a_card_from_a_graph_from_several_and_from_a_data_set(work: Path, tmp_path: Path) -> None:
    model = copied_model(work, tmp_path)
    said = good("card", "--model", model, "--graph", work / CLEAN).stdout
    assert "source card of 1797 nodes, 64 feature columns, 10 classes" in said and "gcn.card.safetensors" in said
    made = {
        "beside": tmp_path / "gcn.card.safetensors",
        "set": tmp_path / "set.card.safetensors",
        "two": tmp_path / "two.card.safetensors",
    }
    assert good("card", "--model", model, "--dataset", "digits", "--out", made["set"], "-q").output == ""
    both = ("--graph", work / CLEAN, "--graph", work / DIM)
    facts = json.loads(good("card", "--model", model, *both, "--out", made["two"], "--json").stdout)
    assert facts["nodes"] == 2 * 1797 and facts["card"] == str(made["two"]) and facts["provenance"]["seed"] == 0
    digests = {
        name: json.loads(good("info", path, "--json").stdout)["digest"]
        for name, path in {**made, "trained": work / "gcn.card.safetensors"}.items()
    }
    assert digests["beside"] == digests["set"] == digests["trained"] != digests["two"] == facts["digest"]


def test_a_card_for_ones_own_model(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "from torch_geometric.nn import GraphSAGE\ndef build():\n    return GraphSAGE(64, 8, 2, 10)\n"
    (tmp_path / "their_sage.py").write_text(text)
    save_file(GraphSAGE(64, 8, 2, 10).state_dict(), tmp_path / "w.safetensors")
    monkeypatch.chdir(tmp_path)
    own = ("--factory", "their_sage:build", "--weights", "w.safetensors")
    good("card", *own, "--graph", work / CLEAN, "--embedding", "convs.0", "-q")
    facts = json.loads(good("info", "w.card.safetensors", "--json").stdout)
    assert facts["kind"] == "source card" and facts["embedding units"] == 8 and facts["first layer units"] == 8
    (report,) = reports("mend", *own, "--graph", work / CLEAN, "--verdict-only", "--embedding", "convs.0")
    assert report["verdict"]["regime"] == "card" and report["card"]["digest"] == facts["digest"]


def test_what_a_card_cannot_be_made_from(work: Path, tmp_path: Path) -> None:
    model = ("card", "--model", work / "gcn.safetensors")
    complains("give either --graph", *model)
    complains("give either --graph", *model, "--graph", work / CLEAN, "--dataset", "digits")
    complains("unknown data set 'digit'", *model, "--dataset", "digit")
    complains("give a checkpoint, or both a factory and weights", "card", "--dataset", "digits")
    complains("x has shape (178, 13)", *model, "--dataset", "wine", "--out", tmp_path / "c.safetensors")
    complains("would overwrite", *model, "--dataset", "digits", "--out", work / "gcn.safetensors")
    complains("has no module 'no'", *model, "--dataset", "digits", "--embedding", "no", "--out", tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


# which card


def test_the_card_beside_the_model_is_found_and_said(work: Path, tmp_path: Path) -> None:
    said = good(*mend(work, CLEAN), "--out", tmp_path / "a").output
    assert "found beside the model" in " ".join(said.split()), "wherever the line is broken"
    said = good(*mend(work, CLEAN), "--out", tmp_path / "b", "--card", work / "gcn.card.safetensors").output
    assert "source card" in said and "found beside" not in said
    said = good(*mend(work, CLEAN), "--out", tmp_path / "c", "--no-card").output
    assert "no source card, as asked for" in said
    model = copied_model(work, tmp_path)
    said = good("mend", "--model", model, "--graph", work / CLEAN, "--out", tmp_path / "d").output
    assert "make it with 'graphmend card'" in " ".join(said.split())
    regimes = [json.loads((tmp_path / name / "clean.json").read_text())["verdict"]["regime"] for name in "abcd"]
    assert regimes == ["card", "card", "blind", "blind"]


def test_a_card_can_be_made_on_the_way(work: Path, tmp_path: Path) -> None:
    model = copied_model(work, tmp_path)
    command = ("mend", "--model", model, "--graph", work / DIM, "--verdict-only")
    (report,) = reports(*command, "--source", work / CLEAN)
    assert report["verdict"]["menders"] == ["align"] and "made from" in report["card"]["origin"]
    (other,) = reports(*command, "--source", work / CLEAN, "--source", work / DIM)
    assert other["card"]["digest"] != report["card"]["digest"]
    complains("leave out --card", *command, "--source", work / CLEAN, "--card", work / "gcn.card.safetensors")
    complains("leave out --no-card", *command, "--source", work / CLEAN, "--no-card")


def test_bad_cards_are_refused_before_anything_is_written(work: Path, tmp_path: Path) -> None:
    damaged, other = tmp_path / "damaged.safetensors", tmp_path / "other.card.safetensors"
    damaged.write_bytes((work / "gcn.card.safetensors").read_bytes()[:-200])
    good("train", "--dataset", "digits", "--seed", "1", "--epochs", "2", "--out", tmp_path / "other.safetensors", "-q")
    command = (*mend(work, CLEAN), "--out", tmp_path / "out", "--card")
    complains("there is no file", *command, tmp_path / "none")
    complains("not a readable safetensors file", *command, damaged)
    complains("holds no source card", *command, work / "gcn.safetensors")
    complains(f"{other}: the source card belongs to another model", *command, other)
    complains("make one with 'graphmend card', or mend without one with --no-card", *command, other)
    complains("--no-card and --card", *command, other, "--no-card")
    narrow = load_graph(work / CLEAN)
    narrow.x = narrow.x[:, :9]
    save_graph(tmp_path / "narrow.npz", narrow)
    model = ("--model", work / "gcn.safetensors")
    expected = "of a graph with 64 feature columns, this graph has 9"
    complains(expected, "mend", *model, "--graph", tmp_path / "narrow.npz", "--out", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    stale = copied_model(work, tmp_path)
    (tmp_path / "gcn.card.safetensors").write_bytes(other.read_bytes())
    complains("found beside the model: the source card belongs", "mend", "--model", stale, *command[3:-1])


def test_a_card_remembers_its_embedding(work: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.card.safetensors"
    made = ("card", "--model", work / "gcn.safetensors", "--dataset", "digits", "--embedding", "convs.1", "--out", path)
    good(*made, "-q")
    command = (*mend(work, DIM), "--verdict-only", "--card", path)
    for more in ((), ("--embedding", "convs.1")):
        assert reports(*command, *more)[0]["verdict"]["decision"] == "applied"
    complains("made with the embedding 'convs.1', this adapter has 'convs.0'", *command, "--embedding", "convs.0")


# verdicts


def test_the_table_leads_with_the_verdict_and_the_report_carries_it(work: Path, tmp_path: Path) -> None:
    said = good(*mend(work, CLEAN, NOISY, DIM), "--out", tmp_path).output
    table, sentences = said.split("\n\n")
    rows = {line.split()[0]: line for line in table.splitlines()}
    assert "left alone" in rows[CLEAN] and "nothing" in rows[CLEAN]
    assert "impute" in rows[NOISY] and "align" in rows[DIM]
    stored = {name: json.loads((tmp_path / f"{name}.json").read_text()) for name in ("clean", "noisy", "dim")}
    assert stored["clean"]["verdict"]["decision"] == "left alone"
    lines = sentences.splitlines()
    for name in stored:
        verdict, rows_changed = stored[name]["verdict"], stored[name]["feature_rows_changed"]
        done = f"; {rows_changed} feature rows changed" if name != "clean" else ""
        place = lines.index(f"{name}.npz: {verdict['sentence']}{done}")
        assert (verdict["next_step"] == "") is (name == "clean")
        assert name == "clean" or lines[place + 1] == f"  next: {verdict['next_step']}"
    assert torch.equal(load_graph(tmp_path / CLEAN).x, load_graph(work / CLEAN).x)
    noisy = (load_graph(work / NOISY).x != load_graph(work / CLEAN).x).any(1)
    changed = (load_graph(tmp_path / NOISY).x != load_graph(work / NOISY).x).any(1)
    assert int((noisy != changed).sum()) <= 2, "up to two rows, the broken ones and no others"
    assert stored["noisy"]["feature_rows_changed"] == int(changed.sum())
    assert stored["dim"]["feature_rows_changed"] == 1797
    for name in ("noisy", "dim"):
        verdict, test = stored[name]["verdict"], stored[name]["test"]
        assert verdict["decision"] == "applied" and f" {100 * verdict['flips']:.1f} % " in rows[f"{name}.npz"]
        assert f" {test['before']['accuracy']:.3f} → {test['after']['accuracy']:.3f} " in rows[f"{name}.npz"]
        assert {"name", "value", "threshold", "above", "holds"} == set(verdict["evidence"][0])
        assert test["after"]["accuracy"] > test["before"]["accuracy"] + 0.02


def test_the_command_and_the_call_come_to_the_same(work: Path, tmp_path: Path) -> None:
    (report,) = reports(*mend(work, DIM), "--out", tmp_path)
    card = SourceCard.load(work / "gcn.card.safetensors")
    result = graphmend.mend(load_model(work / "gcn.safetensors"), load_graph(work / DIM), card=card)
    assert result.verdict is not None
    assert report["verdict"] == json.loads(json.dumps(result.verdict.summary()))
    torch.testing.assert_close(load_graph(tmp_path / DIM).x, result.data.x)


def test_verdict_only_shows_the_evidence_and_writes_nothing(
    work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(work.iterdir())
    said = good(*mend(work, DIM, CLEAN), "--verdict-only").output
    assert "nothing is written" in said and "Evidence for dim.npz" in said and "Evidence for clean.npz" in said
    line = next(line for line in said.splitlines() if line.startswith("shift of the first layer"))
    assert "at least" in line and line.split()[-1] == "found"
    second = said.index("Evidence for clean.npz")
    both = reports(*mend(work, DIM, CLEAN), "--verdict-only")
    for part, report in zip((said[:second], said[second:]), both, strict=True):
        shown = [row.strip() for row in part.splitlines() if row.strip().endswith(("found", "the limit"))]
        missed = [row.endswith(("not found", "above the limit")) for row in shown]
        assert missed == [not item["holds"] for item in report["verdict"]["evidence"]]
    quiet = good(*mend(work, DIM, CLEAN), "--verdict-only", "-q").stdout.splitlines()
    assert [sentence.split(":")[:2] for sentence in quiet] == [[DIM, " applied"], [CLEAN, " left alone"]]
    first, second = reports(*mend(work, DIM, CLEAN), "--verdict-only", "--out", tmp_path / "out")
    assert first["verdict"]["menders"] == ["align"] and second["verdict"]["menders"] == []
    assert sorted(work.iterdir()) == before and list(tmp_path.iterdir()) == []


def test_without_a_place_for_results_there_is_no_mending(work: Path) -> None:
    complains("give --out, or --verdict-only", *mend(work, DIM))


@pytest.mark.parametrize("option", [["--verdict-only"], ["--questions", "3"], ["--labels", "l.csv"]])
def test_other_adapters_give_no_verdict(work: Path, tmp_path: Path, option: list[str]) -> None:
    complains("gives none", *mend(work, DIM), "--out", tmp_path / "out", "--adapter", "align", *option)


def test_other_menders_by_name(work: Path, tmp_path: Path) -> None:
    (report,) = reports(*mend(work, DIM), "--adapter", "align", "--out", tmp_path / "out")
    assert report["verdict"] is None and report["feature_rows_changed"] == 1797
    assert report["settings"]["card"] is not None and "steps" not in report["settings"]
    complains("needs a source card", *mend(work, DIM), "--adapter", "purify", "--no-card", "--out", tmp_path / "out")


@pytest.mark.parametrize(
    "option",
    ["--steps 10", "--lr-feature 0.1", "--budget 0.1", "--surrogate contrastive", "--label-mask train_mask"],
)
def test_options_of_gtrans_are_refused_by_the_gate(work: Path, tmp_path: Path, option: str) -> None:
    expected = f"{option} does not apply to --adapter gate; add --adapter gtrans, or leave the option out"
    complains(expected, *mend(work, DIM), "--out", tmp_path / "out", *option.split())
    assert not (tmp_path / "out").exists()


def test_gtrans_has_no_use_for_a_card(work: Path, tmp_path: Path) -> None:
    command = (*mend(work, DIM), "--adapter", "gtrans", "--steps", "1", "--out", tmp_path)
    complains("--adapter gtrans has no use", *command, "--card", work / "gcn.card.safetensors")
    (report,) = reports(*command)
    assert report["settings"]["card"] is None and report["settings"]["steps"] == 1 and report["verdict"] is None


def test_finished_work_is_skipped_unless_the_card_is_another(work: Path, tmp_path: Path) -> None:
    other, written = tmp_path / "other.card.safetensors", tmp_path / "out" / DIM
    good("card", "--model", work / "gcn.safetensors", "--graph", work / CLEAN, "--seed", "3", "--out", other, "-q")
    times = []
    for more in ([], [], ["--card", work / "gcn.card.safetensors"], ["--card", other], ["--no-card"], ["--no-card"]):
        good(*mend(work, DIM), "--out", tmp_path / "out", "-q", *more)
        times.append(written.stat().st_mtime_ns)
    assert times[0] == times[1] == times[2] < times[3] < times[4] == times[5]


# questions and labels


def write_labels(path: Path, data: torch.Tensor, nodes: list[int]) -> Path:
    path.write_text("node,label\n" + "".join(f"{node},{int(data[node])}\n" for node in nodes))
    return path


def test_a_few_labels_settle_it(work: Path, tmp_path: Path) -> None:
    command, y = (*mend(work, ATTACKED), "--out", tmp_path / "out"), load_graph(work / ATTACKED).y
    said = good(*command, "--questions", "12").output
    stored = json.loads((tmp_path / "out" / "attacked.json").read_text())
    nodes = stored["questions"]
    assert len(nodes) == 12 and f"in this order: {', '.join(map(str, nodes))}" in said
    right = write_labels(tmp_path / "right.csv", y, nodes)
    (report,) = reports(*command, "--labels", right)
    verdict = report["verdict"]
    assert verdict["decision"] == "applied" and verdict["regime"] == "labels" and report["edge_entries_removed"] > 0
    assert "speak for the change" in verdict["sentence"]
    assert report["test"]["after"]["accuracy"] > report["test"]["before"]["accuracy"] + 0.05
    first = (tmp_path / "out" / ATTACKED).stat().st_mtime_ns
    good(*command, "--labels", right, "-q")
    assert (tmp_path / "out" / ATTACKED).stat().st_mtime_ns == first
    predicted = graphmend.Identity()(load_model(work / "gcn.safetensors"), load_graph(work / ATTACKED)).logits
    wrong = write_labels(tmp_path / "wrong.csv", predicted.argmax(1), nodes)
    (report,) = reports(*command, "--labels", wrong)
    assert report["verdict"]["decision"] == "left alone" and report["edge_entries_removed"] == 0
    assert (tmp_path / "out" / ATTACKED).stat().st_mtime_ns != first


def test_where_nothing_is_proposed_there_is_nothing_to_ask(work: Path, tmp_path: Path) -> None:
    command = (*mend(work, CLEAN), "--verdict-only")
    assert reports(*command, "--questions", "5")[0]["questions"] == []
    assert "nothing to ask about" in good(*command, "--questions", "5").output
    (tmp_path / "l.csv").write_text("3,1\n")
    result = good(*command, "--labels", tmp_path / "l.csv")
    assert "left alone" in result.stdout and "nothing that the labels" in result.stderr


LABELS = {
    "": "holds no labels",
    "node,label\n": "holds no labels",
    "1,2\n3\n": "line 2 of",
    "1,2\n3,x\n": "'3,x'; write a node and its label",
    "1000000000000000000000000000000,1\n": "write a node and its label",
    "1,2\n-3,1\n": "'-3,1'",
    "1,2\n\n1,3\n": "line 3 of",
    "1,2\n1,3\n": "node 1 has the label 2 above",
    "9000,1\n": "names node 9000, but the nodes are 0 to 1796",
    "1,77\n": "the label 77, but the classes are 0 to 9",
    "0,1\n": "none of the labelled nodes changes its prediction; label those of --questions",
}


@pytest.mark.parametrize("text", LABELS)
def test_bad_labels(work: Path, tmp_path: Path, text: str) -> None:
    (tmp_path / "l.csv").write_text(text)
    command = (*mend(work, ATTACKED), "--labels", tmp_path / "l.csv", "--out", tmp_path / "out")
    complains(LABELS[text], *command)
    assert not (tmp_path / "out").exists()


def test_labels_are_about_one_graph(work: Path, tmp_path: Path) -> None:
    complains("mend one at a time", *mend(work, DIM, NOISY), "--labels", tmp_path / "l.csv", "--verdict-only")
    complains("there is no file", *mend(work, DIM), "--labels", tmp_path / "l.csv", "--verdict-only")
    (tmp_path / "l.csv").write_bytes(b"\xff\xfe1,2")
    complains("is not a text file of rows node,label", *mend(work, DIM), "--labels", tmp_path / "l.csv", "--out", "o")


def test_verbose_says_what_is_decided_and_twice_why(work: Path) -> None:
    command = [*mend(work, DIM), "--verdict-only"]
    silent, what, why = (good(*command, *flags) for flags in ((), ("-v",), ("-vv",)))
    assert silent.stdout == what.stdout == why.stdout and silent.stderr == ""
    decided = [line for line in what.stderr.splitlines() if line.startswith("info: ")]
    assert len(decided) == 1 and decided == what.stderr.splitlines() and "Gate(): applied: " in decided[0]
    reasons = [line for line in why.stderr.splitlines() if line.startswith("debug: ")]
    assert decided[0] in why.stderr.splitlines() and any("shift of the first layer" in line for line in reasons)
    assert good(*command, "-vv", "-q").stderr == ""
    assert good(*command).stderr == "", "the next command is silent again"
