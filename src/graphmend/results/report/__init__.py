"""One page about a result that opens from disk and asks nobody for anything."""
