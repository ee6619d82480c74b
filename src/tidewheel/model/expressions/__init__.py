"""Polars expressions: written as lasting text, checked to be row by row, and those for geography."""
