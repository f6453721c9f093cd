"""The metrics of a monitor for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphmend.errors import optional_module
from graphmend.monitor.monitor import Monitor

__all__ = ["Collector", "prometheus_text"]

_INSTALL = "install it with: pip install 'graphmend[monitor]'"


class Collector:
    """What ``prometheus_client.REGISTRY.register`` takes, so that a service shows the monitor among its own metrics.

    Args:
        monitor: The monitor.
    """

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._core = optional_module("prometheus_client.core", "Prometheus text", _INSTALL)

    def collect(self) -> Iterator[Any]:
        """All metrics as they are now."""
        monitor, core, alarm = self.monitor, self._core, self.monitor.alarm
        graphs = core.CounterMetricFamily("graphmend_graphs", "Graphs by decision.", labels=["decision"])
        for decision, number in sorted(monitor.state.decisions.items()):
            graphs.add_metric([decision], number)
        yield graphs
        capital = core.GaugeMetricFamily(
            "graphmend_evidence", "Evidence of a change by kind, a power of ten.", labels=["kind"]
        )
        raised = core.GaugeMetricFamily("graphmend_alarm", "1 for the kinds of the alarm that stands.", labels=["kind"])
        for kind, value in monitor.capital.items():
            capital.add_metric([kind], value)
            raised.add_metric([kind], float(alarm is not None and kind in alarm.kinds))
        yield capital
        yield raised
        limit, rate = "Evidence from which an alarm is raised.", "False-alarm rate over unlimited time."
        yield core.GaugeMetricFamily("graphmend_evidence_limit", limit, value=monitor.limit)
        yield core.GaugeMetricFamily("graphmend_false_alarm_rate", rate, value=monitor.state.rate)
        if alarm is not None:
            since = "Number of the graph with which the alarm that stands probably began."
            yield core.GaugeMetricFamily("graphmend_alarm_since_graph", since, value=alarm.since)


def prometheus_text(monitor: Monitor) -> str:
    """The metrics as text, for a file that the node exporter collects, or for a page of your own."""
    client = optional_module("prometheus_client", "Prometheus text", _INSTALL)
    registry = client.CollectorRegistry(auto_describe=False)
    registry.register(Collector(monitor))
    text: str = client.generate_latest(registry).decode()
    return text
