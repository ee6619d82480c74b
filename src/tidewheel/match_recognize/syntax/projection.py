"""The statement around a clause where only columns are chosen: `SELECT a, b AS c, * FROM name MATCH_RECOGNIZE (…)`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from sqlglot.tokenizer_core import Token, TokenType

from tidewheel.errors import StatementError
from tidewheel.match_recognize.expressions.to_polars import find_column
from tidewheel.match_recognize.syntax.scalar import Span
from tidewheel.match_recognize.syntax.statement import Statement
from tidewheel.match_recognize.syntax.tokens import split, tokens_of, word

__all__ = ["Chosen", "Projection", "read_projection"]

_SHAPE = "over a stream, a statement is SELECT columns FROM stream MATCH_RECOGNIZE (…)"
_REMEDY = "compute it in MEASURES, or prepare the stream's rows before, or give a DataFrame in place of the stream"


@dataclass(frozen=True, slots=True)
class Chosen:
    """A column and the name that it gets (None: its own); without a column, all of them."""

    column: str | None
    name: str | None
    span: Span


@dataclass(frozen=True, slots=True)
class Projection:
    """The columns that a statement selects, and the one table that its clause reads."""

    table: str
    chosen: tuple[Chosen, ...]
    text: str

    def of(self, columns: Iterable[str]) -> tuple[tuple[str, str], ...]:
        """Each column that is chosen of these, with its name.

        >>> from tidewheel.match_recognize.syntax.statement import parse
        >>> statement = parse("SELECT v.*, x AS y FROM t MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x > 1) v")
        >>> read_projection(statement).of(["x", "n"])
        (('x', 'x'), ('n', 'n'), ('x', 'y'))
        """
        known = dict.fromkeys(columns)
        found: list[tuple[str, str]] = []
        for one in self.chosen:
            if one.column is None:
                found += [(name, name) for name in known]
                continue
            name = find_column(one.column, known)
            if name is None:
                self._refuse(f"there is no column {one.column}, only {', '.join(known)}", one.span)
            found.append((name, one.name or name))
            if [chosen for _, chosen in found].count(found[-1][1]) > 1:
                self._refuse(f"two columns are called {found[-1][1]}; name one of them with AS", one.span)
        names = [name for _, name in found]
        if len(set(names)) < len(names):
            self._refuse("a column is chosen twice; name one of them with AS", self.chosen[-1].span)
        return tuple(found)

    def _refuse(self, message: str, span: Span) -> NoReturn:
        raise StatementError(message, text=self.text, start=span[0], end=span[1])


def read_projection(statement: Statement) -> Projection:
    """Parse a statement over one stream that only selects columns; anything else is refused with its place."""
    return _Reader(statement).read()


class _Reader:
    def __init__(self, statement: Statement) -> None:
        self._statement = statement
        self._outer = statement.outer
        self._tokens = tokens_of(self._outer)
        names = [recognition.name for recognition in statement.recognitions]
        own = [index for index, token in enumerate(self._tokens) if token.text in names]
        self._name = own[-1] if own else 0

    def read(self) -> Projection:
        [*others, recognition] = self._statement.recognitions
        if others or recognition.scope:
            self._refuse(self._tokens[0], "over a stream there is one MATCH_RECOGNIZE and no WITH; chain statements")
        if word(self._tokens[0]) != "SELECT" or self._name < 2 or word(self._tokens[self._name - 1]) != "FROM":
            self._refuse(self._tokens[0], f"{_SHAPE}; {_REMEDY}")
        alias = self._alias()
        chosen = [self._chosen(part, alias) for part in split(self._tokens[1 : self._name - 1])]
        return Projection(self._table(recognition.relation), tuple(chosen), self._statement.text)

    def _alias(self) -> str | None:
        """The name that the clause has in the statement."""
        rest = self._tokens[self._name + 1 :]
        if rest and word(rest[0]) == "AS":
            rest = rest[1:]
        if len(rest) > 1 or (rest and not _is_name(rest[0])):
            self._refuse(rest[1] if len(rest) > 1 and _is_name(rest[0]) else rest[0], f"{_SHAPE}; {_REMEDY}")
        return rest[0].text if rest else None

    def _chosen(self, part: list[Token], alias: str | None) -> Chosen:
        whole, name = part, None
        if not part:
            self._refuse(self._tokens[self._name - 1], "a column is missing before this")
        span = self._place(part[0].start)[0], self._place(part[-1].end)[0] + 1
        if len(part) > 2 and part[1].token_type == TokenType.DOT and part[0].text.lower() == (alias or "").lower():
            part = part[2:]
        if len(part) > 1 and _is_name(part[-1]):
            name = part[-1].text
            part = part[:-2] if word(part[-2]) == "AS" else part[:-1]
        if len(part) == 1 and name is None and part[0].token_type == TokenType.STAR:
            return Chosen(None, None, span)
        if len(part) != 1 or not _is_name(part[0]):
            self._refuse(whole[0], f"{_SHAPE}, and this is no column; {_REMEDY}", whole[-1])
        return Chosen(part[0].text, name, span)

    def _table(self, relation: str) -> str:
        tokens = tokens_of(relation)
        rest = tokens[1:]
        if rest and word(rest[0]) == "AS":
            rest = rest[1:]
        if not _is_name(tokens[0]) or len(rest) > 1 or (rest and not _is_name(rest[0])):
            start = self._statement.text.find(relation)
            raise StatementError(
                f"{_SHAPE}, where stream is a name; {_REMEDY}",
                text=self._statement.text,
                start=max(start, 0),
                end=start + len(relation),
            )
        return tokens[0].text

    def _place(self, offset: int) -> Span:
        """Translate a position in the text around the clause to a position in the statement."""
        given = [token for token in tokens_of(self._statement.text) if token.token_type != TokenType.SEMICOLON]
        if offset <= self._tokens[self._name].start:
            start = offset + given[0].start
        else:
            start = given[-1].end + 1 - (len(self._outer) - offset)
        return start, start + 1

    def _refuse(self, token: Token, message: str, last: Token | None = None) -> NoReturn:
        start = self._place(token.start)[0]
        end = self._place((last or token).end)[0] + 1
        raise StatementError(message, text=self._statement.text, start=start, end=end)


def _is_name(token: Token) -> bool:
    if token.token_type == TokenType.IDENTIFIER:
        return True
    plain = token.text.replace("_", "a")
    return token.token_type != TokenType.STRING and plain.isalnum() and not token.text[0].isdigit()
