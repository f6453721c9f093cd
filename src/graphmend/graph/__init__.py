"""Graphs and what may change in them: checks, limits, edge flips, the budget."""
