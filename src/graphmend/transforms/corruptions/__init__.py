"""Harm to features and edges."""
