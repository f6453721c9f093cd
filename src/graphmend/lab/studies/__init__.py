"""Single questions, each answered by one script and its stored run."""
