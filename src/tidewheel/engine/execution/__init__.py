"""Queries: building, starting and watching them, their session, watermarks and outputs."""
