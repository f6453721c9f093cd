"""Transforms that damage features or edges at random."""
