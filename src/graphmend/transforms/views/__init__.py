"""Random augmentations that keep the nodes in place."""
