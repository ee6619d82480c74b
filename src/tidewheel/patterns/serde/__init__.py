"""Expressions, patterns and measures as JSON and back."""
