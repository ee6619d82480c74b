"""Reads a MATCH_RECOGNIZE clause from its tokens, part by part, and refuses what makes no sense at its place."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot.tokenizer_core import Token, TokenType

from tidewheel.errors import DefinitionError, StatementError
from tidewheel.match_recognize.compile.program import compile_pattern
from tidewheel.match_recognize.expressions.references import check_references
from tidewheel.match_recognize.syntax.clause import Clause, ColumnName, Measure, OrderBy, Rows, Skip
from tidewheel.match_recognize.syntax.row_pattern import Excluded, RowPattern, parts_of, read_pattern, variables_of
from tidewheel.match_recognize.syntax.scalar import Scalar, Span, read_scalar
from tidewheel.match_recognize.syntax.tokens import Cursor, split
from tidewheel.model.time import Duration, duration

__all__ = ["read_clause"]

# A word begins a part only if what follows fits too: columns may have such names.
_PARTS = (
    ("ORDER BY",),
    ("ORDER", "BY"),
    ("MEASURES",),
    ("ONE", "ROW"),
    ("ALL", "ROWS"),
    ("AFTER", "MATCH"),
    ("INITIAL",),
    ("SEEK",),
    ("PATTERN", "("),
    ("WITHIN",),
    ("SUBSET",),
    ("DEFINE",),
)


def read_clause(text: str, tokens: Sequence[Token], end: int) -> Clause:
    """The clause whose parts are these tokens (all between its parentheses); `end` is where they end in the text."""
    return _ClauseReader(text, tokens, end).read()


class _ClauseReader:
    def __init__(self, text: str, tokens: Sequence[Token], end: int) -> None:
        self._text, self._end = text, end
        self._at = Cursor(text, tokens, end)

    def read(self) -> Clause:
        at = self._at
        partition_by = self._columns() if self._by("PARTITION") else ()
        order_by = self._order() if self._by("ORDER") else ()
        measures = self._measures() if at.take("MEASURES") else ()
        rows_at = at.now
        rows = self._rows()
        skip, skip_span = self._skip()
        initial = at.take("INITIAL")
        if not initial:
            at.take("SEEK")
        pattern, places = self._pattern()
        within = self._within()
        subsets = self._subsets(places)
        if not at.take("DEFINE"):
            at.refuse(f"expected DEFINE with the conditions of the pattern's variables, got {at.got()}")
        define = self._define(places)
        if at.now is not None:
            at.refuse(f"expected ) after DEFINE, got {at.got()}")
        clause = Clause(
            partition_by,
            order_by,
            measures,
            rows,
            skip,
            pattern,
            within,
            subsets,
            define,
            tuple(dict.fromkeys(variables_of(pattern))),
            self._text,
            (at.tokens[0].start, self._end),
            initial,
        )
        if skip.variable is not None and skip.variable not in (*clause.variables, *subsets):
            self._refuse(f"AFTER MATCH SKIP TO {skip.variable}: {_unknown(skip.variable, clause)}", skip_span)
        if rows == "all and unmatched" and rows_at is not None and _excludes(pattern):
            span = (rows_at.start, rows_at.end + 1)
            self._refuse("WITH UNMATCHED ROWS and the exclusion {- -} in PATTERN do not go together", span)
        check_references(clause)
        return clause

    def _refuse(self, message: str, span: Span) -> None:
        raise StatementError(message, text=self._text, start=span[0], end=span[1])

    def _until_next_part(self) -> list[Token]:
        """Go past everything before the word that begins the next part."""
        at = self._at
        start = at.index
        depth = 0
        while (token := at.now) is not None:
            if depth == 0 and any(
                all(at.peek(ahead) == expected for ahead, expected in enumerate(words)) for words in _PARTS
            ):
                previous = at.tokens[at.index - 1].token_type if at.index > start else None
                if previous not in (TokenType.DOT, TokenType.COMMA, TokenType.ALIAS) and at.peek(1) not in (
                    ".",
                    "AS",
                    ",",
                ):
                    break
            depth += (token.token_type == TokenType.L_PAREN) - (token.token_type == TokenType.R_PAREN)
            at.index += 1
        return list(at.tokens[start : at.index])

    def _by(self, first: str) -> bool:
        if self._at.take(f"{first} BY"):
            return True
        if not self._at.take(first):
            return False
        self._at.expect("BY", after=first)
        return True

    def _columns(self) -> tuple[ColumnName, ...]:
        return tuple(self._column(part, "PARTITION BY") for part in split(self._until_next_part()))

    def _column(self, tokens: Sequence[Token], what: str) -> ColumnName:
        span = (tokens[0].start, tokens[-1].end + 1) if tokens else (self._place(), self._place() + 1)
        named = tokens and (tokens[0].token_type == TokenType.IDENTIFIER or tokens[0].text.replace("_", "a").isalnum())
        if len(tokens) != 1 or not named or tokens[0].token_type in (TokenType.NUMBER, TokenType.STRING):
            got = self._text[span[0] : span[1]].strip() if tokens else "nothing"
            self._refuse(f"{what} takes columns of the input, got {got or 'nothing'}", span)
        return ColumnName(tokens[0].text, span)

    def _place(self) -> int:
        token = self._at.now
        return self._end if token is None else token.start

    def _order(self) -> tuple[OrderBy, ...]:
        found = []
        for part in split(self._until_next_part()):
            words = [token.text.upper() for token in part]
            nulls_last: bool | None = None
            if words[-2:] in (["NULLS", "FIRST"], ["NULLS", "LAST"]):
                nulls_last = words[-1] == "LAST"
                part, words = part[:-2], words[:-2]
            descending = words[-1:] == ["DESC"]
            if words[-1:] in (["DESC"], ["ASC"]):
                part = part[:-1]
            column = self._column(part, "ORDER BY")
            found.append(OrderBy(column, descending, descending if nulls_last is None else nulls_last))
        return tuple(found)

    def _measures(self) -> tuple[Measure, ...]:
        found: dict[str, Measure] = {}
        for part in split(self._until_next_part()):
            if len(part) < 2 or part[-2].token_type != TokenType.ALIAS:
                span = (part[0].start, part[-1].end + 1) if part else (self._place(), self._place() + 1)
                self._refuse("a measure has a name: expected an expression, AS and a name", span)
            name = part[-1].text
            if name.lower() in found:
                self._refuse(f"two measures are called {name}", (part[-1].start, part[-1].end + 1))
            value = read_scalar(self._text, part[:-2], f"the measure {name}", part[-2].start)
            found[name.lower()] = Measure(name, value)
        return tuple(found.values())

    def _rows(self) -> Rows:
        at = self._at
        if at.take("ONE"):
            at.expect("ROW", "PER", "MATCH", after="ONE")
            return "one"
        if not at.take("ALL"):
            return "one"
        at.expect("ROWS", "PER", "MATCH", after="ALL")
        if at.take("SHOW"):
            at.expect("EMPTY", "MATCHES", after="SHOW")
        elif at.take("OMIT"):
            at.expect("EMPTY", "MATCHES", after="OMIT")
            return "all but empty"
        elif at.take("WITH"):
            at.expect("UNMATCHED", "ROWS", after="WITH")
            return "all and unmatched"
        return "all"

    def _skip(self) -> tuple[Skip, Span]:
        at = self._at
        if not at.take("AFTER"):
            return Skip(), (0, 0)
        at.expect("MATCH", "SKIP", after="AFTER")
        if at.take("PAST"):
            at.expect("LAST", "ROW", after="SKIP PAST")
            return Skip(), (0, 0)
        if not at.take("TO"):
            at.refuse(f"expected PAST LAST ROW or TO … after AFTER MATCH SKIP, got {at.got()}")
        if at.peek() == "NEXT" and at.peek(1) == "ROW":
            at.take("NEXT", "ROW")
            return Skip("next row"), (0, 0)
        first = False
        # FIRST and LAST may be names of variables too.
        if at.peek() in ("FIRST", "LAST") and not self._a_part_follows(1):
            first = at.take("FIRST") or not at.take("LAST")
        token = at.name("NEXT ROW or a variable of the pattern after AFTER MATCH SKIP TO")
        return Skip("first" if first else "last", _variable(token)), (token.start, token.end + 1)

    def _a_part_follows(self, ahead: int) -> bool:
        at = self._at
        return any(all(at.peek(ahead + n) == expected for n, expected in enumerate(words)) for words in _PARTS)

    def _pattern(self) -> tuple[RowPattern, dict[str, Span]]:
        at = self._at
        if not at.take("PATTERN"):
            at.refuse(f"expected PATTERN, got {at.got()}")
        start, end = at.group("PATTERN")
        span = (at.tokens[start - 1].end + 1, at.tokens[end].start)
        pattern, places = read_pattern(self._text, *span)
        try:
            compile_pattern(pattern, tuple(places))
        except DefinitionError as error:
            raise StatementError(str(error), text=self._text, start=span[0], end=span[1]) from None
        return pattern, places

    def _within(self) -> Duration | None:
        at = self._at
        if not at.take("WITHIN"):
            return None
        if not at.take("INTERVAL"):
            at.refuse(f"expected INTERVAL '10' SECOND or the like after WITHIN, got {at.got()}")
        words: list[str] = []
        start = self._place()
        while at.now is not None and at.peek() not in ("SUBSET", "DEFINE"):
            words.append(at.now.text)
            at.index += 1
        token = at.tokens[at.index - 1]
        span = (start, token.end + 1)
        try:
            length = duration(" ".join(words), what="WITHIN INTERVAL")
        except DefinitionError:
            got = self._text[span[0] : span[1]]
            raise StatementError(
                f"WITHIN INTERVAL must be like '10' SECOND or '1' HOUR, got {got}",
                text=self._text,
                start=span[0],
                end=span[1],
            ) from None
        if length <= 0:
            self._refuse("WITHIN must be longer than nothing, or no row would match", span)
        return length

    def _subsets(self, variables: dict[str, Span]) -> dict[str, tuple[str, ...]]:
        at = self._at
        subsets: dict[str, tuple[str, ...]] = {}
        if not at.take("SUBSET"):
            return subsets
        while True:
            token = at.name("the name of a subset after SUBSET")
            name = _variable(token)
            span = (token.start, token.end + 1)
            if name in variables or name in subsets:
                self._refuse(f"SUBSET {name}: there is a variable of that name already", span)
            at.expect("=", after=f"SUBSET {name}")
            start, end = at.group(f"SUBSET {name} =")
            members = []
            for part in split(at.tokens[start:end]):
                if len(part) != 1:
                    self._refuse(f"SUBSET {name}: expected variables between commas", span)
                member = _variable(part[0])
                if member not in variables:
                    self._refuse(
                        f"SUBSET {name}: PATTERN has no variable {member}, only {', '.join(variables)}",
                        (part[0].start, part[0].end + 1),
                    )
                members.append(member)
            subsets[name] = tuple(members)
            if not at.take(","):
                return subsets

    def _define(self, variables: dict[str, Span]) -> dict[str, Scalar]:
        at = self._at
        define: dict[str, Scalar] = {}
        rest = list(at.tokens[at.index :])
        at.index = len(at.tokens)
        for part in split(rest):
            if len(part) < 2 or part[1].token_type != TokenType.ALIAS:
                span = (part[0].start, part[-1].end + 1) if part else (self._end, self._end + 1)
                self._refuse("DEFINE: expected a variable, AS and a condition", span)
            name = _variable(part[0])
            span = (part[0].start, part[0].end + 1)
            if name in define:
                self._refuse(f"DEFINE gives {name} two conditions", span)
            if name not in variables:
                self._refuse(f"DEFINE {name}: PATTERN has no such variable, only {', '.join(variables)}", span)
            define[name] = read_scalar(self._text, part[2:], f"the condition of {name}", part[1].end + 1)
        return define


def _variable(token: Token) -> str:
    return token.text if token.token_type == TokenType.IDENTIFIER else token.text.upper()


def _unknown(name: str, clause: Clause) -> str:
    return f"PATTERN has no variable {name}, only {', '.join((*clause.variables, *clause.subsets))}"


def _excludes(pattern: RowPattern) -> bool:
    return any(isinstance(part, Excluded) for part in parts_of(pattern))
