"""The options of 'graphmend mend', with what its help says about them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphmend.adapters import ADAPTERS
from graphmend.cli.methods import GATE
from graphmend.errors import listed
from graphmend.surrogates import SURROGATES
from graphmend.transforms import VIEWS


def _option(panel: str, text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=panel, **more)


_GATE = "The gate and its source card"
_GTRANS = "With --adapter gtrans"
_LIMITS = "What may change"

Graphs = Annotated[
    list[Path], typer.Option(help="Graph to mend, .npz (x, edge_index, ...) or a saved PyG Data; may be repeated.")
]
Out = Annotated[Path | None, typer.Option(help="Directory for the results; needed unless --verdict-only is given.")]
Model = Annotated[Path | None, typer.Option(help="Checkpoint written by 'graphmend train'.")]
Factory = Annotated[
    str | None, typer.Option(help="package.module:function that builds your own model; needs --weights.")
]
Weights = Annotated[Path | None, typer.Option(help="Your model's state_dict as safetensors.")]
Method = Annotated[
    str,
    typer.Option(
        help=f"Who mends: {listed((*ADAPTERS, GATE))}. The gate finds out what is wrong, if anything, and decides which"
        " of the others acts; gtrans is the method of the paper."
    ),
]
Embedding = Annotated[str | None, typer.Option(help="Module whose output is the embedding, here and in the card.")]
Mode = Annotated[str, typer.Option(help="auto, or eager to compute the plain, slower way.")]

CardFile = Annotated[
    Path | None,
    _option(
        _GATE,
        "Source card written by 'graphmend card' or 'graphmend train'. NAME.card.safetensors beside the model's"
        " NAME.safetensors is found without it.",
    ),
]
Source = Annotated[
    list[Path] | None,
    _option(_GATE, "Graph the model was trained on, to make a card from on the way; may be repeated."),
]
NoCard = Annotated[
    bool, _option(_GATE, "Use no card: the gate then acts only where the evidence is plain.", "--no-card")
]
VerdictOnly = Annotated[
    bool, _option(_GATE, "Say what would be done and on what evidence, and write nothing.", "--verdict-only")
]
Questions = Annotated[
    int, _option(_GATE, "List at most so many nodes whose labels would settle whether the change helps.", min=0)
]
Labels = Annotated[
    Path | None,
    _option(_GATE, "CSV of rows node,label for nodes that --questions listed: they settle what is done to the graph."),
]

SurrogateName = Annotated[str, _option(_GTRANS, f"Surrogate loss: {listed(SURROGATES)}.")]
View = Annotated[str, _option(_GTRANS, f"Augmentation of the contrastive loss: {listed(VIEWS)}.")]
LabelMask = Annotated[
    str | None, _option(_GTRANS, "Mask in the graph file whose labels may be used, such as train_mask.")
]
SurrogateWeight = Annotated[float, _option(_GTRANS, "Weight of the surrogate beside known labels.")]
Steps = Annotated[int, _option(_GTRANS, "Steps in all.")]
FeatureSteps = Annotated[int, _option(_GTRANS, "Feature steps per cycle; 0 keeps the features.")]
EdgeSteps = Annotated[int, _option(_GTRANS, "Edge steps per cycle; 0 keeps the edges.")]
LrFeature = Annotated[
    float,
    _option(_GTRANS, "How far a feature step goes, in standard deviations of each column; see --feature-scale."),
]
FeatureScale = Annotated[
    str,
    _option(
        _GTRANS,
        "relative: --lr-feature counts standard deviations of each column in the graph, so units do not matter."
        " absolute: it is in the features' own units, as in the paper.",
    ),
]
LrEdge = Annotated[float, _option(_GTRANS, "Learning rate of the edge flips.")]
Budget = Annotated[str, _option(_GTRANS, "Edges that may flip: a fraction (0.05) or a count (100).")]
NumSamples = Annotated[int, _option(_GTRANS, "Discrete graphs to draw.")]
EdgeUpdate = Annotated[str, _option(_GTRANS, "adam, sign or gradient.")]
Space = Annotated[str, _option(_GTRANS, "existing edges, or random_block to add edges too.")]
Directed = Annotated[str, _option(_GTRANS, "Directed edges: delete, or reverse as the released code.")]
TimeLimit = Annotated[float | None, _option(_GTRANS, "Seconds per graph after which no step is begun.")]

Minimum = Annotated[float | None, _option(_LIMITS, "Lowest feature value.")]
Maximum = Annotated[float | None, _option(_LIMITS, "Highest feature value.")]
Binary = Annotated[bool, _option(_LIMITS, "All features stay 0 or 1.", "--binary")]
