"""The figure of a result; what it looks like was looked at, here is what must be in it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

import graphmend
from graphmend import GTrans, Identity, mend
from graphmend.errors import GraphMendError
from graphmend.lab.backbones import GCN
from graphmend.results.plane import _shrink, plane, sampled
from support.graphs import labelled
from support.untouched import assert_same, state_of

pytest.importorskip("matplotlib")
pytestmark = pytest.mark.usefixtures("one_thread")


def model() -> GCN:
    torch.manual_seed(0)
    return GCN(5, 8, 3)


def words(figure: Any) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_every_panel_has_its_words_and_its_data(tmp_path: Path) -> None:
    net, data = model(), labelled(40)
    result = GTrans(steps=10, lr_feature=0.5)(net, data)
    before, states = "matplotlib.pyplot" in sys.modules, state_of(net, data)
    figure = result.plot(tmp_path / "new folder" / "figure.png")
    assert ("matplotlib.pyplot" in sys.modules) == before, "no global state"
    assert_same(states, state_of(net, data))
    loss, flips, first, second = figure.axes
    assert (loss.get_xlabel(), loss.get_ylabel()) == ("step", "surrogate loss")
    assert [text.get_text() for text in loss.get_legend().get_texts()] == ["feature step", "edge step"]
    assert np.array_equal(loss.lines[0].get_ydata(), [step.loss for step in result.history])
    assert flips.get_title(loc="left") == f"{result.changed.numel()} of 40 predictions changed"
    assert sum(bar.get_width() for bar in flips.patches) == result.changed.numel() > 0
    for axes, title in ((first, "Embedding before"), (second, "Embedding after")):
        assert axes.get_title(loc="left") == title and axes.get_xlabel() and axes.get_ylabel()
        assert len(axes.collections[0].get_offsets()) == 40
        faint = axes.collections[0].get_alpha()
        assert np.unique(faint, return_counts=True)[1].tolist() == [40 - result.changed.numel(), result.changed.numel()]
    assert first.get_xlim() == second.get_xlim() and first.get_ylim() == second.get_ylim()
    assert result.patch.summary() in words(figure).replace("\n", " ") and "did not change are faint" in words(figure)
    assert (tmp_path / "new folder" / "figure.png").read_bytes()[:4] == b"\x89PNG"


def test_a_gate_shows_its_evidence() -> None:
    net, data = model(), labelled(40)
    card = graphmend.card(net, data, task="classes")
    data.x = data.x + 2.0
    result = mend(net, data, card=card)
    assert result.verdict is not None
    text = words(result.plot())
    assert all(item.name in text and item.cells[1] in text for item in result.verdict.evidence)
    assert result.verdict.sentence[1:] in text.replace("\n", " "), "all of it, however long"


def test_nothing_happened() -> None:
    figure = Identity()(model(), labelled(40)).plot()
    assert "0 of 40 predictions changed" in words(figure) and "No steps were taken" in words(figure)


def test_the_plane_is_that_of_a_principal_component_analysis() -> None:
    result = GTrans(steps=10, lr_feature=0.5)(model(), labelled(40))
    nodes = np.arange(40)
    found = plane(result, nodes)
    points = np.concatenate([found.before, found.after])
    rerun = result.require_rerun()
    z = torch.cat([rerun.embedding_of(g, result.model) for g in (labelled(40), result.data)]).double().numpy()
    analysis = PCA(2).fit(z[40:])
    expected = analysis.transform(z)
    assert found.share == pytest.approx(analysis.explained_variance_ratio_.sum())
    for column in range(2):
        sign = np.sign(points[0, column] * expected[0, column])
        np.testing.assert_allclose(points[:, column], sign * expected[:, column], atol=1e-8)


def test_few_changes_get_rings() -> None:
    net, data = model(), labelled(40)
    result = GTrans(steps=2, lr_feature=0.05)(net, data)
    assert 0 < result.changed.numel() <= 6
    figure = result.plot()
    assert [len(axes.collections[1].get_offsets()) for axes in figure.axes[2:]] == [result.changed.numel()] * 2
    assert "prediction changed" in words(figure)


def test_points_far_out_do_not_melt_the_others_into_one() -> None:
    """Within the circle all is true; outside it directions are, and the order of distances."""
    rng = np.random.default_rng(0)
    after = rng.standard_normal((200, 2))
    before = after * np.where(rng.random(200) < 0.3, 1000.0, 1.0)[:, None]
    drawn = np.concatenate([before, after])
    circle = _shrink(drawn, 200)
    assert circle == pytest.approx(np.quantile(np.linalg.norm(after, axis=1), 0.98))
    true, shown = (np.linalg.norm(z, axis=1) for z in (np.concatenate([before, after]), drawn))
    assert np.array_equal(drawn[true <= circle], np.concatenate([before, after])[true <= circle])
    assert (np.diff(shown[np.argsort(true)]) >= -1e-12).all() and shown.max() == pytest.approx(2 * circle)
    angles = [np.arctan2(*z.T) for z in (np.concatenate([before, after]), drawn)]
    np.testing.assert_allclose(angles[0], angles[1], atol=1e-12)
    assert _shrink(after.copy(), 100) is None


def test_an_embedding_of_one_number_has_a_plane_too() -> None:
    torch.manual_seed(0)
    figure = GTrans(steps=2)(GCN(5, 1, 2), labelled(20)).plot()
    assert np.isfinite(figure.axes[2].collections[0].get_offsets()).all()


def test_of_many_nodes_some_are_drawn() -> None:
    chosen = sampled(300, 100)
    assert len(chosen) == len(set(chosen.tolist())) == 100 and (np.diff(chosen) > 0).all()
    assert sampled(5, 100).tolist() == [0, 1, 2, 3, 4]


def test_an_ending_that_is_no_picture(tmp_path: Path) -> None:
    with pytest.raises(GraphMendError, match=r"cannot be saved as .*figure\.doc'; end the name with one of .*png"):
        Identity()(model(), labelled(20)).plot(tmp_path / "figure.doc")
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_there_is_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(GraphMendError, match=r"a plot needs matplotlib .*pip install 'graphmend\[plot\]'"):
        Identity()(model(), labelled(20)).plot()
