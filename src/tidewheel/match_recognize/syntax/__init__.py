"""Statements with MATCH_RECOGNIZE: tokens, clauses, row patterns, and the statement around them."""
