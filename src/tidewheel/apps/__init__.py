"""Applications built on Tidewheel."""
