"""How to compute fast: sparse products, their gradients, and what a model and a loss allow."""
