"""From a pattern to the program that the NFA runs, bound to the columns of a schema."""
