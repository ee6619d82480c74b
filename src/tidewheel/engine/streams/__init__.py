"""What users hold: streams, keyed and windowed ones, and results."""
