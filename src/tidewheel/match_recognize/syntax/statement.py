"""Statements that contain MATCH_RECOGNIZE: the clauses, what they read, and the statement around them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import sqlglot
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from tidewheel.errors import StatementError
from tidewheel.match_recognize.syntax.clause import Clause
from tidewheel.match_recognize.syntax.clause_reader import read_clause
from tidewheel.match_recognize.syntax.tokens import closing, tokens_of, word

__all__ = ["Definitions", "Recognition", "Statement", "has_match_recognize", "parse"]

_KEYWORD = "MATCH_RECOGNIZE"
# sqlglot takes these for statements wherever they stand; Spark, and people, also for names of columns.
_VERBS = re.compile(
    r"\b(?:alter|analyze|create|delete|drop|insert|kill|merge|refresh|set|show|truncate|update|use)\b", re.I
)
_BEFORE_A_RELATION = {"FROM", "JOIN", ",", "(", "LATERAL"}


@dataclass(frozen=True, slots=True)
class Recognition:
    """One clause, the text of the relation that it reads, and the name that replaces it in the statement.

    scope: the definitions of WITH that the relation may name, from the outermost WITH to the innermost.
    """

    name: str
    relation: str
    clause: Clause
    scope: tuple[Definitions, ...] = ()

    @property
    def query(self) -> str:
        """The query of the relation, with what it names of the statement's WITH.

        >>> [one] = parse('''WITH a AS (SELECT 1 AS x), b AS (SELECT 2 AS x)
        ...     SELECT * FROM a MATCH_RECOGNIZE (PATTERN (A) DEFINE A AS x > 1)''').recognitions
        >>> one.query
        'WITH a AS (SELECT 1 AS x) (SELECT * FROM a)'
        """
        text = f"SELECT * FROM {self.relation}"
        for level in reversed(self.scope):
            text = level.around(text)
        return text


@dataclass(frozen=True, slots=True)
class Definitions:
    """The definitions of one WITH: names, and the text of each query."""

    texts: tuple[tuple[str, str], ...]
    recursive: bool = False

    def around(self, query: str) -> str:
        """The query with those that it needs: with others, a stream that is not read would be a part of it."""
        needed: list[str] = []
        words = {one.text.lower() for one in tokens_of(query)}
        for name, text in reversed(self.texts):
            if name.lower() in words:
                needed.insert(0, text)
                words |= {one.text.lower() for one in tokens_of(text)}
        word_for_it = "WITH RECURSIVE" if self.recursive else "WITH"
        return f"{word_for_it} {', '.join(needed)} ({query})" if needed else query


@dataclass(frozen=True, slots=True, repr=False)
class Statement:
    """A statement in parts: its clauses in the order in which they can be run, and the statement around them.

    `outer` is the statement with every clause replaced by its name. A clause's relation may name an earlier one.

    >>> statement = parse('''SELECT a.top FROM t MATCH_RECOGNIZE (
    ...     ORDER BY time MEASURES LAST(U.price) AS top PATTERN (U+) DEFINE U AS price > PREV(price)) AS a''')
    >>> statement.outer
    'SELECT a.top FROM match_recognize_1 AS a'
    >>> statement.recognitions[0].relation
    't'
    """

    outer: str
    recognitions: tuple[Recognition, ...]
    text: str

    def __repr__(self) -> str:
        return f"parse({self.text!r})"

    @property
    def clause(self) -> Clause:
        """The clause, if there is only one."""
        return self._only.clause

    @property
    def relation(self) -> str:
        """The relation of the clause, if there is only one clause."""
        return self._only.relation

    @property
    def name(self) -> str:
        """The name that replaces the clause in `outer`, if there is only one."""
        return self._only.name

    @property
    def _only(self) -> Recognition:
        if len(self.recognitions) != 1:
            raise ValueError(f"the statement has {len(self.recognitions)} MATCH_RECOGNIZE clauses; see recognitions")
        return self.recognitions[0]


def has_match_recognize(text: str) -> bool:
    """Whether a statement has a MATCH_RECOGNIZE clause, well formed or not.

    >>> has_match_recognize("SELECT * FROM t MATCH_RECOGNIZE (PATTERN (A")
    True
    >>> has_match_recognize("SELECT 'MATCH_RECOGNIZE (' FROM t")
    False
    """
    try:
        tokens = tokens_of(text)
    except StatementError:
        return re.search(rf"\b{_KEYWORD}\b", text, re.IGNORECASE) is not None
    return any(_begins(tokens, index) for index in range(len(tokens)))


def parse(statement: str) -> Statement:
    """Parse a statement into its parts; a malformed one is refused with the place in its text."""
    return _StatementReader(statement).read()


def _begins(tokens: Sequence[Token], index: int) -> bool:
    if word(tokens[index]) != _KEYWORD:
        return False
    after = tokens[index + 1].token_type if index + 1 < len(tokens) else TokenType.L_PAREN
    before = tokens[index - 1].token_type if index else TokenType.FROM
    return after == TokenType.L_PAREN and before not in (TokenType.DOT, TokenType.FROM, TokenType.SELECT)


class _StatementReader:
    """Replaces clause after clause from the left: one in the input of another comes before it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = tokens_of(text)
        while self._tokens and self._tokens[-1].token_type == TokenType.SEMICOLON:
            self._tokens.pop()
        self._end = self._tokens[-1].end + 1 if self._tokens else len(text)
        self._replaced: list[tuple[int, int, str]] = []

    def read(self) -> Statement:
        starts = [index for index in range(len(self._tokens)) if _begins(self._tokens, index)]
        if not starts:
            raise StatementError("the statement has no MATCH_RECOGNIZE ( … )", text=self._text, start=len(self._text))
        found: list[Recognition] = []
        past = -1
        for start in starts:
            if start < past:
                raise StatementError(
                    "a MATCH_RECOGNIZE clause cannot stand inside another's parts; give it as the other's input",
                    text=self._text,
                    start=self._tokens[start].start,
                    end=self._tokens[start].end + 1,
                )
            recognition, past = self._recognition(start, len(found) + 1)
            found.append(recognition)
        outer = self._rendered(self._tokens[0].start, self._end)
        self._check(outer, self._tokens[0].start)
        return Statement(outer, tuple(found), self._text)

    def _recognition(self, start: int, number: int) -> tuple[Recognition, int]:
        end = closing(self._tokens, start + 1) if start + 1 < len(self._tokens) else None
        if end is None:
            token = self._tokens[start]
            raise StatementError(
                f"the statement breaks off: MATCH_RECOGNIZE ( of line {token.line} is never closed",
                text=self._text,
                start=len(self._text),
            )
        first = self._relation(start)
        place = self._tokens[first].start
        relation = self._rendered(place, self._tokens[start - 1].end + 1)
        self._check(relation, place, before="SELECT * FROM ")
        clause = read_clause(self._text, self._tokens[start + 2 : end], self._tokens[end].start)
        name = f"match_recognize_{number}"
        while name in self._text.lower():
            name += "_"
        self._replaced = [one for one in self._replaced if one[0] < place]
        self._replaced.append((place, self._tokens[end].end + 1, name))
        return Recognition(name, relation, clause, self._scope(first)), end

    def _scope(self, index: int) -> tuple[Definitions, ...]:
        """The definitions before a token that are in scope there."""
        found: list[Definitions] = []
        level = 0
        while level < index:
            if word(self._tokens[level]) == "WITH":
                found.append(self._definitions(level, index))
            # The next level is inside the parenthesis that is still open at the token.
            inner = [
                place
                for place in range(level, index)
                if self._tokens[place].token_type == TokenType.L_PAREN
                and (closing(self._tokens, place) or len(self._tokens)) > index
            ]
            if not inner:
                break
            level = inner[0] + 1
        return tuple(one for one in found if one.texts)

    def _definitions(self, index: int, before: int) -> Definitions:
        """The definitions of the WITH at a token, up to another token: `name [(columns)] AS (query), …`."""
        recursive = word(self._tokens[index + 1]) == "RECURSIVE"
        place = index + 2 if recursive else index + 1
        texts = []
        while place < before:
            begin = place
            while place < before and word(self._tokens[place]) != "AS":
                place += 1
            end = closing(self._tokens, place + 1) if place + 1 < before else None
            if end is None or end >= before:
                break
            text = self._rendered(self._tokens[begin].start, self._tokens[end].end + 1)
            texts.append((self._tokens[begin].text, text))
            place = end + 2
            if self._tokens[end + 1].token_type != TokenType.COMMA:
                break
        return Definitions(tuple(texts), recursive)

    def _relation(self, start: int) -> int:
        """The token that begins the relation before the clause."""
        depth = 0
        index = start
        while index > 0:
            token = self._tokens[index - 1]
            if token.token_type == TokenType.R_PAREN:
                depth += 1
            elif depth == 0 and word(token) in _BEFORE_A_RELATION:
                break
            elif token.token_type == TokenType.L_PAREN:
                depth -= 1
            index -= 1
        if index == start or index == 0:
            token = self._tokens[start]
            raise StatementError(
                "MATCH_RECOGNIZE stands after a table or a sub-select in FROM",
                text=self._text,
                start=token.start,
                end=token.end + 1,
            )
        return index

    def _rendered(self, start: int, end: int) -> str:
        """A piece of the text with the names of the clauses in it."""
        pieces = []
        for first, last, name in self._replaced:
            if start <= first and last <= end:
                pieces += [self._text[start:first], name]
                start = last
        return "".join([*pieces, self._text[start:end]])

    def _check(self, sql: str, place: int, before: str = "") -> None:
        """Let sqlglot read what Spark will be given."""
        try:
            trees = sqlglot.parse(before + _VERBS.sub(lambda verb: "x" * len(verb[0]), sql), read="spark")
        except ParseError as error:
            first = error.errors[0] if error.errors else {}
            reason = str(first.get("description") or "it is not a query").rstrip(".")
            raise StatementError(
                f"the statement around MATCH_RECOGNIZE cannot be read: {reason}",
                text=self._text,
                start=self._original(first, before, sql, place),
            ) from None
        except (SqlglotError, RecursionError, ValueError, AttributeError, TypeError, KeyError, IndexError) as error:
            reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
            raise StatementError(
                f"the statement around MATCH_RECOGNIZE cannot be read: {reason}", text=self._text, start=place
            ) from None
        if len(trees) != 1 or not isinstance(trees[0], sqlglot.exp.Query):
            raise StatementError("expected one query", text=self._text, start=place)

    def _original(self, error: dict[str, object], before: str, sql: str, place: int) -> int:
        """Translate the position of an error in the rewritten statement to the original."""
        line, column = error.get("line"), error.get("col")
        if not isinstance(line, int) or not isinstance(column, int):
            return place
        lines = (before + sql).split("\n")
        offset = place + sum(len(one) + 1 for one in lines[: line - 1]) + column - 1 - len(before)
        for first, last, name in self._replaced:
            if place <= first and offset >= first + len(name):
                offset += last - first - len(name)
        return min(max(offset, place), len(self._text))
