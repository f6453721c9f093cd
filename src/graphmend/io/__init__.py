"""Files: atomic writes, safe reads, where a number comes from."""
