"""Events on the wire and in the log: envelope, codec, type registry, the log and its implementations."""
