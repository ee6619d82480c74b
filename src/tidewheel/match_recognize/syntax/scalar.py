"""Expressions in a clause, read by sqlglot from tokens that keep their places in the statement."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.parser import Parser
from sqlglot.tokenizer_core import Token, TokenType

from tidewheel.errors import StatementError
from tidewheel.match_recognize.syntax.tokens import closing, word
from tidewheel.model.stored_fields import StoredFields

__all__ = ["MARK", "Scalar", "Span", "read_scalar", "span_of"]

Span = tuple[int, int]
"""Where something stands in the statement: start, and end after it."""

MARK = "TW_"
"""Before every function's name, so that sqlglot hands it on as it was written and we say what it means."""

_OWN_SYNTAX = {"CAST", "TRY_CAST", "EXTRACT", "EXISTS", "POSITION", "SUBSTRING", "TRIM", "ARRAY", "OVER", "FILTER"}
_WORDS = {"AND", "OR", "NOT", "IN", "ANY", "SOME", "ALL", "LIKE", "ILIKE", "RLIKE", "BETWEEN", "IS", "AS", "ON"}
_MORE_WORDS = {"CASE", "WHEN", "THEN", "ELSE", "END", "SELECT", "FROM", "WHERE", "VALUES", "DISTINCT", "BY", "ESCAPE"}
_TYPES = {"DECIMAL", "NUMERIC", "DEC", "CHAR", "VARCHAR", "TIMESTAMP", "TIME", "FLOAT", "INTERVAL", "MAP", "STRUCT"}
_NOT_A_CALL = _OWN_SYNTAX | _WORDS | _MORE_WORDS | _TYPES
_NAME = re.compile(r"[^\W\d]\w*")
_NO_SCALARS = (exp.Alias, exp.Aliases, exp.Command, exp.DDL, exp.Select, exp.SetOperation, exp.Values)
_SEMANTICS = ("RUNNING", "FINAL")


@dataclass(frozen=True, slots=True)
class Scalar:
    """An expression: its text, where it stands, and its tree (sqlglot's)."""

    stable_name: ClassVar[str] = "match_recognize.scalar/1"
    stored: ClassVar[StoredFields] = StoredFields("text")

    text: str
    span: Span = field(repr=False, compare=False)
    tree: exp.Expr = field(repr=False, compare=False)


def read_scalar(text: str, tokens: Sequence[Token], what: str, end: int) -> Scalar:
    """The expression of these tokens; `end` is where it would stand if there is none."""
    if not tokens:
        raise StatementError(f"expected an expression for {what}, got nothing", text=text, start=end)
    span = (tokens[0].start, tokens[-1].end + 1)
    try:
        trees = Parser().parse(_marked(text, tokens), text)
    except StatementError:
        raise
    except ParseError as error:
        raise _misread(text, span, what, error) from None
    except RecursionError:
        raise StatementError(f"{what} is nested too deep", text=text, start=span[0], end=span[1]) from None
    except (SqlglotError, ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
        raise StatementError(f"{what} cannot be read: {error}", text=text, start=span[0], end=span[1]) from None
    if len(trees) != 1 or trees[0] is None or isinstance(trees[0], _NO_SCALARS):
        raise StatementError(f"{what} is not one expression", text=text, start=span[0], end=span[1])
    return Scalar(text[span[0] : span[1]], span, trees[0])


def span_of(tree: Any, default: Span) -> Span:
    """Where a part of an expression stands, as far as sqlglot remembers."""
    found = [node.meta for node in tree.walk() if "start" in node.meta and "end" in node.meta]
    if not found:
        return default
    return min(meta["start"] for meta in found), max(meta["end"] for meta in found) + 1


def _marked(text: str, tokens: Sequence[Token]) -> list[Token]:
    """The tokens with a mark before functions' names, and parentheses around what RUNNING and FINAL are said of."""
    given = list(tokens)
    closes: dict[int, list[Token]] = {}
    marked: list[Token] = []
    for index, token in enumerate(given):
        following = given[index + 1] if index + 1 < len(given) else None
        called = following is not None and following.token_type == TokenType.L_PAREN
        previous = given[index - 1].token_type if index else None
        name = word(token)
        if name in _SEMANTICS and previous != TokenType.DOT and following is not None and not called:
            close = _end_of_call(text, given, index)
            marked += [_like(token, TokenType.VAR, MARK + name), _like(token, TokenType.L_PAREN, "(")]
            closes.setdefault(close, []).append(_like(given[close], TokenType.R_PAREN, ")"))
            continue
        if called and previous != TokenType.DOT and name not in _NOT_A_CALL and _NAME.fullmatch(token.text):
            token = _like(token, TokenType.VAR, MARK + name)
        marked.append(token)
        marked += closes.get(index, [])
    return marked


def _end_of_call(text: str, tokens: Sequence[Token], index: int) -> int:
    token = tokens[index]
    if index + 2 < len(tokens) and tokens[index + 2].token_type == TokenType.L_PAREN:
        close = closing(tokens, index + 2)
        if close is not None:
            return close
    raise StatementError(
        f"{word(token)} stands before a function, as in {word(token)} LAST(A.price)",
        text=text,
        start=token.start,
        end=token.end + 1,
    )


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, token.line, token.col, token.start, token.end)


def _misread(text: str, span: Span, what: str, error: ParseError) -> StatementError:
    first = error.errors[0] if error.errors else {}
    description = str(first.get("description") or "it is not an expression").rstrip(".")
    description = re.sub(
        r"Required keyword: '\w+' missing for <class '[\w.]*\.(\w+)'>", r"\1 lacks an operand", description
    )
    start, end = span
    if "line" in first and "col" in first:
        lines = text.split("\n")
        place = sum(len(line) + 1 for line in lines[: first["line"] - 1]) + first["col"] - 1
        if span[0] <= place < span[1]:
            start = max(span[0], place - len(first.get("highlight") or " ") + 1)
            end = place + 1
    return StatementError(f"{what} cannot be read: {description}", text=text, start=start, end=end)
