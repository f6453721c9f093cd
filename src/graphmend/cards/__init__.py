"""Source cards: what a model saw when it was trained, in a few kilobytes."""

from graphmend.cards.make import card
from graphmend.cards.source_card import SourceCard

__all__ = ["SourceCard", "card"]
