"""What `tidewheel run` is made of: its options, what it shows, and recordings as its input."""
