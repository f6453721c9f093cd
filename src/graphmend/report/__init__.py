"""Plots; they read results, they compute none."""
