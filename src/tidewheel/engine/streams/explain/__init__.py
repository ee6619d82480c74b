"""A query in words, as a graph, and in notebooks."""
