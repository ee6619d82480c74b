"""From a clause to what is run: the program of its row pattern, DEFINE, MEASURES, and the prefilter."""
