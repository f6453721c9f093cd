"""Data sets that others have published."""
