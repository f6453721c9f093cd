"""``python -m graphmend``."""

from graphmend.cli import main

main()
