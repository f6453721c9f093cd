"""What an adapter returns: the mended graph, its history and its reversible patch."""
