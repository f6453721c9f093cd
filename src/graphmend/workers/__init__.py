"""Who does the work: this process, several on this machine, or a Ray cluster."""
