"""The web application: the API, the live stream, the page, health and metrics."""
