"""Explain a query as text, as a graph, and in notebooks."""
