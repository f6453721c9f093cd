"""Watching a stream of graphs: an alarm when it has changed, with a false-alarm rate over unlimited time."""

from graphmend.monitor.monitor import Alarm, Entry, Monitor
from graphmend.monitor.signs import KINDS

__all__ = ["KINDS", "Alarm", "Entry", "Monitor"]
