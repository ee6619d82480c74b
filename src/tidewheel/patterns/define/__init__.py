"""Defining a pattern: the builder, its stages, the policy after a match, and what conditions may say."""
