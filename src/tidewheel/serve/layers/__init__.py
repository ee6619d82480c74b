"""Layers: the presentation of a result topic, described by its author or inferred from its fields."""
