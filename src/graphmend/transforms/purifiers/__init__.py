"""Transforms that remove suspicious edges."""
