"""The processors that come with Tidewheel: events in their envelope, and JSON objects."""
