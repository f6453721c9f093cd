"""One page about a result that opens from disk and loads nothing from elsewhere."""
