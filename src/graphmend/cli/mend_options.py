"""The options of 'graphmend mend', with what its help says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphmend.cli.common import number

GATE = "gate"
"""The adapter that chooses among the others."""


def _option(panel: str | None, text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=panel, **more)


_GATE = "The gate and its source card"
_GTRANS = "With --adapter gtrans"
_LIMITS = "What may change"

Graphs = Annotated[
    list[Path],
    _option(None, "Graph to mend, .npz (x, edge_index, ...) or a saved PyG Data; may be repeated.", metavar="FILE"),
]
Out = Annotated[
    Path | None, _option(None, "Folder for the results; needed unless --verdict-only is given.", metavar="FOLDER")
]
Model = Annotated[Path | None, _option(None, "Checkpoint written by 'graphmend train'.", metavar="FILE")]
Factory = Annotated[
    str | None,
    _option(
        None,
        "Function without arguments that builds your own model, as package.module:function; needs --weights. The"
        " current folder is searched first.",
        metavar="FUNCTION",
    ),
]
Weights = Annotated[Path | None, _option(None, "The state_dict of your own model as safetensors.", metavar="FILE")]
Method = Annotated[
    str,
    _option(
        None,
        "Who mends. The gate finds out what is wrong, if anything, and decides which of the others acts; gtrans is the"
        " method of the paper. 'graphmend list adapters' explains all.",
        metavar="NAME",
    ),
]
Embedding = Annotated[
    str | None, _option(None, "Module whose output is the embedding, here and in the card.", metavar="NAME")
]
Mode = Annotated[str, _option(None, "auto, or eager to compute the plain, slower way.", metavar="NAME")]

CardFile = Annotated[
    Path | None,
    _option(
        _GATE,
        "Source card written by 'graphmend card' or 'graphmend train'. NAME.card.safetensors beside the model's"
        " NAME.safetensors is found without it.",
        metavar="FILE",
    ),
]
Source = Annotated[
    list[Path] | None,
    _option(_GATE, "Graph the model was trained on, to make a card from on the way; may be repeated.", metavar="FILE"),
]
NoCard = Annotated[
    bool, _option(_GATE, "Use no card: the gate then acts only where the evidence is plain.", "--no-card")
]
VerdictOnly = Annotated[
    bool, _option(_GATE, "Say what would be done and on what evidence, and write nothing.", "--verdict-only")
]
Questions = Annotated[
    int,
    _option(
        _GATE,
        "List at most this many nodes whose labels would settle whether the change helps.",
        callback=number(0),
        metavar="NUMBER",
    ),
]
Labels = Annotated[
    Path | None,
    _option(
        _GATE,
        "CSV of rows node,label for nodes that --questions listed: they settle what is done to the graph.",
        metavar="FILE",
    ),
]

FrozenNodes = Annotated[
    str | None,
    _option(
        _LIMITS,
        "Array in the graph file that marks the nodes whose features must not change, with 1 or true; frozen_nodes if"
        " the file has that.",
        metavar="ARRAY",
    ),
]
FrozenColumns = Annotated[
    str | None,
    _option(_LIMITS, "The same for feature columns; frozen_columns if the file has that.", metavar="ARRAY"),
]
FrozenEdges = Annotated[
    str | None,
    _option(_LIMITS, "The same for edges that must stay; frozen_edges if the file has that.", metavar="ARRAY"),
]
Minimum = Annotated[float | None, _option(_LIMITS, "Lowest feature value.", callback=number(), metavar="NUMBER")]
Maximum = Annotated[float | None, _option(_LIMITS, "Highest feature value.", callback=number(), metavar="NUMBER")]
Binary = Annotated[bool, _option(_LIMITS, "All features stay 0 or 1.", "--binary")]
NonNegative = Annotated[bool, _option(_LIMITS, "No feature goes below 0.", "--non-negative")]


def _gtrans(text: str, metavar: str = "NUMBER", **more: Any) -> Any:
    return _option(_GTRANS, text, metavar=metavar, **more)


SurrogateName = Annotated[str, _gtrans("Surrogate loss; 'graphmend list surrogates' explains all.", "NAME")]
View = Annotated[str, _gtrans("Augmentation of the contrastive loss; 'graphmend list views' explains all.", "NAME")]
LabelMask = Annotated[
    str | None, _gtrans("Mask in the graph file whose labels may be used, such as train_mask.", "ARRAY")
]
SurrogateWeight = Annotated[float, _gtrans("Weight of the surrogate beside known labels.", callback=number())]
Steps = Annotated[int, _gtrans("Steps in all.")]
FeatureSteps = Annotated[int, _gtrans("Feature steps per cycle; 0 keeps the features.")]
EdgeSteps = Annotated[int, _gtrans("Edge steps per cycle; 0 keeps the edges.")]
LrFeature = Annotated[
    float,
    _gtrans(
        "How far a feature step goes, in standard deviations of each column; see --feature-scale.", callback=number()
    ),
]
FeatureScale = Annotated[
    str,
    _gtrans(
        "relative: --lr-feature counts standard deviations of each column in the graph, so units do not matter."
        " absolute: it is in the features' own units, as in the paper.",
        "NAME",
    ),
]
LrEdge = Annotated[float, _gtrans("Learning rate of the edge flips.", callback=number())]
Budget = Annotated[str, _gtrans("Edges that may flip: a fraction (0.05) or a count (100).")]
NumSamples = Annotated[int, _gtrans("Discrete graphs to draw.")]
EdgeUpdate = Annotated[str, _gtrans("adam, sign or gradient.", "NAME")]
Space = Annotated[str, _gtrans("existing edges, or random_block to add edges too.", "NAME")]
Directed = Annotated[str, _gtrans("Directed edges: delete, or reverse as the released code does.", "NAME")]
TimeLimit = Annotated[float | None, _gtrans("Seconds per graph after which no step is begun.", callback=number())]
