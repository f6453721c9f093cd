"""Source cards as files: where they are, which one belongs to a model, and what they hold."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch_geometric.data import Data

from graphmend.cards import SourceCard
from graphmend.cards import card as make_card
from graphmend.cli.models import for_model
from graphmend.errors import GraphMendError, require
from graphmend.files.files import digest
from graphmend.shards.folder import read_graph

SUFFIX = ".card.safetensors"


@dataclass(frozen=True)
class Card:
    """A source card and where it comes from, in words for a person; without a card, what to do about it."""

    card: SourceCard | None
    origin: str

    @cached_property
    def digest(self) -> str | None:
        """A digest of everything on the card."""
        return None if self.card is None else card_digest(self.card)

    def summary(self) -> dict[str, str | None]:
        """Ready for JSON."""
        return {"origin": self.origin, "digest": self.digest}

    def check(self, net: nn.Module, data: Data) -> None:
        """Raise unless the card belongs to this model and fits the graph."""
        if self.card is None:
            return
        try:
            self.card.check(net, data)
        except GraphMendError as error:
            remedy = "make one with 'graphmend card', or mend without one with --no-card"
            raise GraphMendError(f"{self.origin}: {str(error).partition('; make ')[0]}; {remedy}") from error


def card_beside(checkpoint: Path) -> Path:
    """Where the card of a checkpoint is: ``gcn.card.safetensors`` beside ``gcn.safetensors``."""
    return checkpoint.parent / f"{checkpoint.stem}{SUFFIX}"


def card_of_graphs(
    net: nn.Module,
    graphs: list[Path],
    device: torch.device,
    embedding: str | None,
    output: str | int | None,
    task: str | None,
) -> SourceCard:
    """A card made from the graphs a model was trained on."""
    complete = (read_graph(path, missing_allowed=False) for path in graphs)
    graphs_of = [for_model(data, net, device) for data in complete]
    return make_card(net, graphs_of, embedding=embedding, output=output, task=task)


def find_card(checkpoint: Path | None, given: Path | None, forbidden: bool) -> Card:
    """The card that was asked for, or the one beside the checkpoint, unless none is wanted.

    Args:
        checkpoint: The checkpoint or the weights of the model.
        given: A card file that was asked for.
        forbidden: Whether none is wanted.
    """
    require(given is None or not forbidden, f"--no-card and --card {given} contradict each other; leave one out")
    if given is not None:
        return Card(SourceCard.load(given), f"source card {given}")
    if forbidden:
        return Card(None, "no source card, as asked for")
    beside = None if checkpoint is None else card_beside(checkpoint)
    if beside is not None and beside.is_file():
        return Card(SourceCard.load(beside), f"source card {beside}, found beside the model")
    return Card(None, "no source card; with one far more can be seen: make it with 'graphmend card'")


def card_digest(card: SourceCard) -> str:
    """A digest of everything on a card."""
    tensors, numbers = card.parts()
    return digest(tensors, json.dumps(numbers, sort_keys=True))


def card_facts(card: SourceCard) -> dict[str, Any]:
    """What a card holds, ready for JSON."""
    shares = [round(float(share), 4) for share in card.prior]
    if card.known_task.has_node_classes:
        kinds: dict[str, Any] = {"classes": len(shares), "class shares": shares}
        told: dict[str, Any] = {"edges within a class": card.homophily, "agreement with centroids": card.agreement}
    else:
        kinds, told = {"kinds of nodes": len(shares)}, {"edges within a kind of nodes": card.homophily}
    return {
        "task": card.task,
        "nodes": card.nodes,
        "features": card.column_mean.numel(),
        **kinds,
        "first layer units": card.first_mean.numel(),
        "embedding units": card.z_mean.numel(),
        "noise level": card.noise,
        "nodes of the noise level": card.noise_nodes,
        "temperature": card.temperature,
        "edges per node": card.edges_per_node,
        **told,
        "model": card.model,
        "digest": card_digest(card),
    }
