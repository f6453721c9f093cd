"""``graphmend mend``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from graphmend.cli.common import (
    GATE,
    Device,
    Factory,
    Jobs,
    JsonFlag,
    Model,
    Output,
    Quiet,
    RayAddress,
    Seed,
    Task,
    Verbose,
    Weights,
    number,
    part_of_output,
    reported,
)
from graphmend.cli.console import log_to_stderr


def _option(panel: str | None, text: str, *flags: str, **more: Any) -> Any:
    return typer.Option(*flags, help=text, rich_help_panel=panel, **more)


_GATE = "The gate and its source card"
_LIMITS = "What may change"


@reported
def mend(
    graph: Annotated[
        list[Path],
        _option(
            None,
            "Graph to mend, .npz (x, edge_index, ...), a saved PyG Data or a graph folder; may be repeated.",
            metavar="FILE",
        ),
    ],
    out: Annotated[
        Path | None, _option(None, "Folder for the results; needed unless --verdict-only is given.", metavar="FOLDER")
    ] = None,
    model: Model = None,
    factory: Factory = None,
    weights: Weights = None,
    adapter: Annotated[
        str,
        _option(
            None,
            "The method. The gate finds out what is wrong, if anything, and decides which of the others acts; gtrans is"
            " the method of the paper. 'graphmend list adapters' explains all.",
            metavar="NAME",
        ),
    ] = GATE,
    embedding: Annotated[
        str | None, _option(None, "Module whose output is the embedding, here and in the card.", metavar="NAME")
    ] = None,
    output: Output = None,
    task: Task = None,
    mode: Annotated[str, _option(None, "auto, or eager to compute the plain, slower way.", metavar="NAME")] = "auto",
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
    verbose: Verbose = 0,
    jobs: Jobs = None,
    ray: RayAddress = None,
    report: Annotated[
        bool,
        _option(
            None,
            "Write a page NAME.html about each graph, too, and index.html about several; needs graphmend[report].",
            "--report",
        ),
    ] = False,
    card: Annotated[
        Path | None,
        _option(
            _GATE,
            "Source card written by 'graphmend card' or 'graphmend train'. NAME.card.safetensors beside the model's"
            " NAME.safetensors is found without it.",
            metavar="FILE",
        ),
    ] = None,
    source: Annotated[
        list[Path] | None,
        _option(
            _GATE, "Graph the model was trained on, to make a card from on the way; may be repeated.", metavar="FILE"
        ),
    ] = None,
    no_card: Annotated[
        bool, _option(_GATE, "Use no card: the gate then acts only where the evidence is plain.", "--no-card")
    ] = False,
    verdict_only: Annotated[
        bool, _option(_GATE, "Say what would be done and on what evidence, and write nothing.", "--verdict-only")
    ] = False,
    questions: Annotated[
        int,
        _option(
            _GATE,
            "List at most this many nodes whose labels would settle whether the change helps.",
            callback=number(0),
            metavar="NUMBER",
        ),
    ] = 0,
    labels: Annotated[
        Path | None,
        _option(
            _GATE,
            "CSV of rows node,label for nodes that --questions listed: they settle what is done to the graph.",
            metavar="FILE",
        ),
    ] = None,
    frozen_nodes: Annotated[
        str | None,
        _option(
            _LIMITS,
            "Array in the graph file that marks the nodes whose features must not change, with 1 or true; frozen_nodes"
            " if the file has that.",
            metavar="ARRAY",
        ),
    ] = None,
    frozen_columns: Annotated[
        str | None,
        _option(_LIMITS, "The same for feature columns; frozen_columns if the file has that.", metavar="ARRAY"),
    ] = None,
    frozen_edges: Annotated[
        str | None,
        _option(_LIMITS, "The same for edges that must stay; frozen_edges if the file has that.", metavar="ARRAY"),
    ] = None,
    minimum: Annotated[
        float | None, _option(_LIMITS, "Lowest feature value.", callback=number(), metavar="NUMBER")
    ] = None,
    maximum: Annotated[
        float | None, _option(_LIMITS, "Highest feature value.", callback=number(), metavar="NUMBER")
    ] = None,
    binary: Annotated[bool, _option(_LIMITS, "All features stay 0 or 1.", "--binary")] = False,
    non_negative: Annotated[bool, _option(_LIMITS, "No feature goes below 0.", "--non-negative")] = False,
    settings: dict[str, Any] | None = None,
) -> None:
    """Mend graphs for a trained model, where there is something to mend; labels are not needed.

    The gate compares each graph with what the model saw in training, which is on the source card, and says what it did
    and why; a graph that is fine is left alone. --verdict-only shows all evidence and writes nothing.

    Example:

    ```
    graphmend mend --model gcn.safetensors --graph today.npz --out mended/
    graphmend mend --model gcn.safetensors --graph today.npz --verdict-only
    ```

    For each graph NAME these files are written: NAME.npz (the mended graph), NAME.predictions.npz,
    NAME.patch.safetensors (the change; 'graphmend revert' takes it back, 'graphmend explain' says what it did to a
    node) and NAME.json (the verdict and all settings). For a graph folder, the mended graph and the patch are folders,
    too: NAME and NAME.patch.
    Graphs that were already mended with the same settings and the same card are skipped. If a graph has labels y and a
    test_mask, the scores on those nodes before and after are reported.
    """
    level = log_to_stderr(quiet, verbose)
    from graphmend.cli.mend_run import Request, run_mend

    run_mend(
        Request(
            graphs=graph,
            out=None if verdict_only else out,
            model=model,
            factory=factory,
            weights=weights,
            adapter=adapter,
            given={**(settings or {}), **({} if embedding is None else {"embedding": embedding})},
            limits={
                "frozen_nodes": frozen_nodes,
                "frozen_columns": frozen_columns,
                "frozen_edges": frozen_edges,
                "minimum": minimum,
                "maximum": maximum,
                "binary": binary,
                "non_negative": non_negative,
            },
            output=part_of_output(output),
            task=task,
            mode=mode,
            seed=seed,
            device=device,
            card=card,
            sources=source or [],
            no_card=no_card,
            verdict_only=verdict_only,
            report=report,
            questions=questions,
            labels=labels,
            json=json_,
            quiet=quiet,
            log_level=level,
            jobs=jobs,
            ray=ray,
        )
    )
