"""Stock PyG convolutions in which every edge has a presence between 0 and 1."""
