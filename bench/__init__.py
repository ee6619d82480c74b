"""The evaluation: every figure is measured beside its baseline in the same run, because machines differ."""
