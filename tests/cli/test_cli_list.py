"""``graphmend list`` explains every name that the registries hold."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from typer.testing import CliRunner

from graphmend.adapters import ADAPTERS, Identity
from graphmend.cli import app
from graphmend.cli.list import FAMILIES
from graphmend.cli.list_run import NEEDS, UNNAMED, first_sentence, registries
from graphmend.lab.backbones import BACKBONES
from graphmend.lab.data import DATASETS
from graphmend.lab.training import TRAINERS
from graphmend.surrogates import SURROGATES
from graphmend.surrogates.registry import NEEDS as SURROGATE_NEEDS


def said(*arguments: str, columns: int = 80) -> str:
    result = CliRunner().invoke(app, ["list", *arguments], env={"COLUMNS": str(columns)})
    assert result.exit_code == 0, result.output
    return result.stdout


def members(*arguments: str) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = json.loads(said(*arguments, "--json"))
    return found


def names(family: str) -> set[str]:
    return {member["name"] for member in members(family)[family]}


def test_every_member_of_every_family_has_a_sentence() -> None:
    found = members()
    assert list(found) == list(FAMILIES) and set(FAMILIES) == set(registries())
    for family, rows in found.items():
        assert [row["name"] for row in rows] == sorted(registries()[family]) and rows
        for row in rows:
            assert set(row) == {"name", "summary", "needs"}
            assert re.fullmatch(r"[A-Z].*[.?!]", row["summary"]), (family, row)
            assert not re.search(r"\\|`|http|:math:|:class:", row["summary"]), (family, row)


def test_the_names_are_those_of_the_registries() -> None:
    assert names("backbones") == set(BACKBONES) and names("trainers") == set(TRAINERS)
    assert names("adapters") == {*ADAPTERS, "gate"} and names("datasets") == set(DATASETS)
    assert names("surrogates") == {*SURROGATES, *SURROGATE_NEEDS} and set(UNNAMED) == set(SURROGATE_NEEDS)


def test_needs_are_those_of_known_members() -> None:
    assert not [name for family, needs in NEEDS.items() for name in needs if name not in registries()[family]]
    needs = {row["name"]: row["needs"] for rows in members().values() for row in rows}
    assert needs["purify"] == "a source card" and needs["tent"].startswith("batch normalisation") and needs["gcn"] == ""
    assert "dual_gcn" in needs["uda_gcn"] and "SLAPS.fit" in needs["slaps"]
    assert needs["cora"].startswith("its files") and needs["wine"] == ""


def test_a_new_member_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Mine(Identity):
        """Change nothing, but slowly. It takes its time."""

    monkeypatch.setitem(ADAPTERS, "mine", Mine)
    (mine,) = (row for row in members("adapters")["adapters"] if row["name"] == "mine")
    assert mine == {"name": "mine", "summary": "Change nothing, but slowly.", "needs": ""}


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_list_fits_into_the_terminal(columns: int) -> None:
    text = said(columns=columns)
    assert max(map(len, text.splitlines())) <= columns and "\u2026" not in text
    words = " ".join(text.split())
    for family, about in FAMILIES.items():
        assert f"{family}: {about}" in words
    assert (
        "purify Cut the edges that fit worst, in proportion to how many there are in excess. Needs a source card."
        in words
    )


def test_one_family_alone() -> None:
    text = said("views")
    assert text.startswith("views: ") and "drop_edge" in text and "gtrans" not in text


def test_an_unknown_family_is_answered_with_all_of_them() -> None:
    result = CliRunner().invoke(app, ["list", "models"])
    assert result.exit_code == 2
    assert result.stderr.startswith("error: unknown family 'models'; choose one of adapters, attacks, backbones, ")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("One. Two.", "One."),
        ("Pull it (Eq. 6 of the\n    paper). Push.", "Pull it (Eq. 6 of the paper)."),
        ("A net (Kipf & Welling, ICLR 2017, https://arxiv.org/abs/1609.02907).", "A net (Kipf & Welling, ICLR 2017)."),
        ("Over ``mask`` with :class:`~graphmend.lab.backbones.GCN`: fine", "Over mask with GCN: fine"),
        ("Where is it? Here.", "Where is it?"),
        ("First paragraph\n\nSecond.", "First paragraph"),
        (None, ""),
    ],
)
def test_the_first_sentence_is_plain_text(text: str | None, sentence: str) -> None:
    assert first_sentence(text) == sentence
