"""Files: atomic writes, safe reads, and the provenance of results."""
