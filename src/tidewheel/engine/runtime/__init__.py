"""The runtime of operators: flows of stages, the exchange between them, key groups and their state. No Spark."""
