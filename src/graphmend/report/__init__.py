"""Plots of stored results; nothing is computed here."""
