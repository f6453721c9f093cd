"""``graphmend mend``."""

from __future__ import annotations

import typer

from graphmend.cli import mend_options as options
from graphmend.cli.common import Device, JsonFlag, Quiet, Seed, reported
from graphmend.cli.console import log_to_stderr
from graphmend.cli.engines import Jobs, RayAddress


@reported
def mend(
    context: typer.Context,
    graph: options.Graphs,
    out: options.Out = None,
    model: options.Model = None,
    factory: options.Factory = None,
    weights: options.Weights = None,
    adapter: options.Method = options.GATE,
    embedding: options.Embedding = None,
    mode: options.Mode = "auto",
    json_: JsonFlag = False,
    seed: Seed = 0,
    device: Device = "cpu",
    quiet: Quiet = False,
    jobs: Jobs = None,
    ray: RayAddress = None,
    card: options.CardFile = None,
    source: options.Source = None,
    no_card: options.NoCard = False,
    verdict_only: options.VerdictOnly = False,
    questions: options.Questions = 0,
    labels: options.Labels = None,
    frozen_nodes: options.FrozenNodes = None,
    frozen_columns: options.FrozenColumns = None,
    frozen_edges: options.FrozenEdges = None,
    minimum: options.Minimum = None,
    maximum: options.Maximum = None,
    binary: options.Binary = False,
    non_negative: options.NonNegative = False,
    surrogate: options.SurrogateName = "contrastive",
    view: options.View = "drop_edge",
    label_mask: options.LabelMask = None,
    surrogate_weight: options.SurrogateWeight = 0.01,
    steps: options.Steps = 10,
    feature_steps: options.FeatureSteps = 4,
    edge_steps: options.EdgeSteps = 1,
    lr_feature: options.LrFeature = 1e-3,
    feature_scale: options.FeatureScale = "relative",
    lr_edge: options.LrEdge = 0.1,
    budget: options.Budget = "0.05",
    num_samples: options.NumSamples = 5,
    edge_update: options.EdgeUpdate = "adam",
    space: options.Space = "existing",
    directed: options.Directed = "delete",
    time_limit: options.TimeLimit = None,
) -> None:
    """Mend graphs for a trained model, where there is something to mend; labels are not needed.

    The gate compares each graph with what the model saw in training, as the source card has it, and says what it did
    and why; a graph that is as it should be is left alone. --verdict-only shows all evidence and writes nothing.

    Example:

    ```
    graphmend mend --model gcn.safetensors --graph today.npz --out mended/
    graphmend mend --model gcn.safetensors --graph today.npz --verdict-only
    ```

    For each graph NAME these files are written: NAME.npz (the mended graph), NAME.predictions.npz,
    NAME.patch.safetensors (the change; 'graphmend revert' takes it back) and NAME.json (the verdict and all settings).
    Graphs that were already mended with the same settings and the same card are skipped. If a graph has labels y and a
    test_mask, the scores on those nodes before and after are reported.
    """
    log_to_stderr(quiet)
    from graphmend.cli.mend_run import Request, run_mend

    limits = {
        "frozen_nodes": frozen_nodes,
        "frozen_columns": frozen_columns,
        "frozen_edges": frozen_edges,
        "minimum": minimum,
        "maximum": maximum,
        "binary": binary,
        "non_negative": non_negative,
    }
    settings = {
        "surrogate": surrogate,
        "view": view,
        "label_mask": label_mask,
        "surrogate_weight": surrogate_weight,
        "steps": steps,
        "feature_steps": feature_steps,
        "edge_steps": edge_steps,
        "lr_feature": lr_feature,
        "feature_scale": feature_scale,
        "lr_edge": lr_edge,
        "budget": budget,
        "num_samples": num_samples,
        "edge_update": edge_update,
        "space": space,
        "directed": directed,
        "embedding": embedding,
        "time_limit": time_limit,
    }
    sources = {name: context.get_parameter_source(name) for name in settings}
    given = {name for name, kind in sources.items() if kind is not None and not kind.name.startswith("DEFAULT")}
    run_mend(
        Request(
            graphs=graph,
            out=None if verdict_only else out,
            model=model,
            factory=factory,
            weights=weights,
            adapter=adapter,
            settings=settings,
            given=given,
            limits=limits,
            mode=mode,
            seed=seed,
            device=device,
            card=card,
            sources=source or [],
            no_card=no_card,
            verdict_only=verdict_only,
            questions=questions,
            labels=labels,
            json=json_,
            quiet=quiet,
            jobs=jobs,
            ray=ray,
        )
    )
