"""What is fast, and how fast; each module says how to run it."""

import graphmend  # noqa: F401 (before the first tensor, see graphmend.engine.memory)
