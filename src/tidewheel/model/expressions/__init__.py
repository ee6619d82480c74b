"""Polars expressions: written as stable text, checked to be row by row, and those for geography."""
