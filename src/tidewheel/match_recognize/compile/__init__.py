"""Compile a clause: the program of its row pattern, DEFINE, MEASURES, and the prefilter."""
