"""Adapters: ``(model, data) -> Adaptation``."""
