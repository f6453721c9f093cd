"""Data sets drawn from a model of the real ones."""
