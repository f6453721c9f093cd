"""Gradient attacks on the edges."""
