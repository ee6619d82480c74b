"""The commands that the application adds to `tidewheel`: demo, simulate and ask, by entry points."""
