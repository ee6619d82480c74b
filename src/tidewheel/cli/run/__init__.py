"""The parts of `tidewheel run`: its options, its progress, and recordings as input."""
