"""SQL expressions in a clause: as polars expressions, and as Python functions over single values."""
