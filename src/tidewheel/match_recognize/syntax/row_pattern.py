"""PATTERN: a regular expression over rows, read from the text of the clause."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from tidewheel.errors import StatementError
from tidewheel.model.stored_fields import StoredFields

__all__ = [
    "Alternatives",
    "Empty",
    "End",
    "Excluded",
    "Permute",
    "Repeat",
    "RowPattern",
    "Sequence",
    "Start",
    "Variable",
    "parts_of",
    "read_pattern",
    "variables_of",
]

_TOKEN = re.compile(
    r"""(?P<space>\s+|/\*.*?\*/|--[^\n]*)
    |(?P<name>"(?:[^"]|"")+"|`(?:[^`]|``)+`|[^\W\d]\w*)
    |(?P<number>\d+)
    |(?P<mark>\{-|-\}|[(){}|,*+?^$])""",
    re.VERBOSE | re.DOTALL,
)
_DEEPEST = 100
_MARKS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


@dataclass(frozen=True, slots=True)
class Variable:
    """One row that meets the variable's condition."""

    stable_name: ClassVar[str] = "match_recognize.variable/1"
    stored: ClassVar[StoredFields] = StoredFields("name")

    name: str


@dataclass(frozen=True, slots=True)
class Sequence:
    """Parts of a row pattern, one after the other."""

    stable_name: ClassVar[str] = "match_recognize.sequence/1"
    stored: ClassVar[StoredFields] = StoredFields("parts")

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class Alternatives:
    """One of its parts, the first that leads to a match."""

    stable_name: ClassVar[str] = "match_recognize.alternatives/1"
    stored: ClassVar[StoredFields] = StoredFields("parts")

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class Permute:
    """All of its parts in any order; orders that begin with earlier parts are preferred."""

    stable_name: ClassVar[str] = "match_recognize.permute/1"
    stored: ClassVar[StoredFields] = StoredFields("parts")

    parts: tuple[RowPattern, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """The part again and again: as often as can be, or (not greedy) as seldom."""

    stable_name: ClassVar[str] = "match_recognize.repeat/1"
    stored: ClassVar[StoredFields] = StoredFields("part", "low", "high", "greedy")

    part: RowPattern
    low: int
    high: int | None
    greedy: bool = True


@dataclass(frozen=True, slots=True)
class Excluded:
    """Matched, but not among the rows that come out."""

    stable_name: ClassVar[str] = "match_recognize.excluded/1"
    stored: ClassVar[StoredFields] = StoredFields("part")

    part: RowPattern


@dataclass(frozen=True, slots=True)
class Empty:
    """The empty row pattern, which takes no row."""

    stable_name: ClassVar[str] = "match_recognize.empty/1"


@dataclass(frozen=True, slots=True)
class Start:
    """Before the first row of the partition."""

    stable_name: ClassVar[str] = "match_recognize.start/1"


@dataclass(frozen=True, slots=True)
class End:
    """The end anchor: after the last row of the partition; `place` is its position in the text."""

    stable_name: ClassVar[str] = "match_recognize.end/1"

    place: int = field(default=0, repr=False, compare=False)


RowPattern = Variable | Sequence | Alternatives | Permute | Repeat | Excluded | Empty | Start | End


def read_pattern(text: str, start: int = 0, end: int | None = None) -> tuple[RowPattern, dict[str, tuple[int, int]]]:
    """Read the pattern between two places of a text, and where each variable is first named.

    Names are in upper case unless quoted.

    >>> read_pattern("A b+?")[0]
    Sequence(parts=(Variable(name='A'), Repeat(part=Variable(name='B'), low=1, high=None, greedy=False)))
    """
    reader = _Reader(text, start, len(text) if end is None else end)
    pattern = reader.alternatives(0)
    if reader.kind != "end":
        reader.refuse(f"PATTERN ends before {reader.value!r}")
    return pattern, reader.places


def variables_of(pattern: RowPattern) -> Iterator[str]:
    """The variables of a pattern from left to right, with repetitions."""
    return (part.name for part in parts_of(pattern) if isinstance(part, Variable))


def parts_of(pattern: RowPattern) -> Iterator[RowPattern]:
    """A pattern and all that it is made of, from left to right."""
    yield pattern
    if isinstance(pattern, (Sequence, Alternatives, Permute)):
        for part in pattern.parts:
            yield from parts_of(part)
    elif isinstance(pattern, (Repeat, Excluded)):
        yield from parts_of(pattern.part)


class _Reader:
    """Recursive descent with one token of look-ahead."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self._text, self._next, self._end = text, start, end
        self.places: dict[str, tuple[int, int]] = {}
        self._advance()

    def _advance(self) -> None:
        while self._next < self._end:
            match = _TOKEN.match(self._text, self._next, self._end)
            self.start = self._next
            if match is None:
                self.kind, self.value, self._next = "other", self._text[self._next], self._next + 1
                self.refuse(f"PATTERN knows no {self.value!r}")
            self._next = match.end()
            if match.lastgroup != "space":
                self.kind, self.value = str(match.lastgroup), match[0]
                return
        self.kind, self.value, self.start = "end", "", self._end

    def refuse(self, message: str) -> NoReturn:
        raise StatementError(message, text=self._text, start=self.start, end=self._next)

    def _take(self, mark: str) -> bool:
        if self.kind == "mark" and self.value == mark:
            self._advance()
            return True
        return False

    def _expect(self, mark: str, what: str) -> None:
        if not self._take(mark):
            self.refuse(f"PATTERN: expected {mark} {what}, got {self.value or 'its end'}")

    def alternatives(self, depth: int) -> RowPattern:
        if depth > _DEEPEST:
            self.refuse(f"PATTERN is nested more than {_DEEPEST} deep")
        parts = [self._sequence(depth)]
        while self._take("|"):
            parts.append(self._sequence(depth))
        return parts[0] if len(parts) == 1 else Alternatives(tuple(parts))

    def _sequence(self, depth: int) -> RowPattern:
        parts = []
        while self.kind == "name" or (self.kind == "mark" and self.value in ("(", "{-", "^", "$")):
            parts.append(self._quantified(self._primary(depth)))
        if not parts:
            got = self.value or "its end"
            self.refuse(f"PATTERN: expected a variable or a group, got {got}; the pattern of no rows is ()")
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _primary(self, depth: int) -> RowPattern:
        if self.kind == "name":
            return self._named(depth)
        if self._take("^"):
            return Start()
        place = self.start
        if self._take("$"):
            return End(place)
        if self._take("{-"):
            part = self.alternatives(depth + 1)
            self._expect("-}", "to end what {- begins")
            return Excluded(part)
        self._expect("(", "to begin a group")
        if self._take(")"):
            return Empty()
        part = self.alternatives(depth + 1)
        self._expect(")", "to end a group")
        return part

    def _named(self, depth: int) -> RowPattern:
        name, place = self.value, (self.start, self._next)
        self._advance()
        if name.upper() == "PERMUTE" and self._take("("):
            parts = [self.alternatives(depth + 1)]
            while self._take(","):
                parts.append(self.alternatives(depth + 1))
            self._expect(")", "to end PERMUTE")
            return Permute(tuple(parts)) if len(parts) > 1 else parts[0]
        quote = name[0]
        plain = name[1:-1].replace(quote * 2, quote) if quote in '"`' else name.upper()
        self.places.setdefault(plain, place)
        return Variable(plain)

    def _quantified(self, part: RowPattern) -> RowPattern:
        if self.kind != "mark":
            return part
        start = self.start
        if self.value in _MARKS:
            low, high = _MARKS[self.value]
            self._advance()
        elif self._take("{"):
            low, high = self._bounds(start)
        else:
            return part
        repeat = Repeat(part, low, high, greedy=not self._take("?"))
        if self.kind == "mark" and (self.value in _MARKS or self.value == "{"):
            self.refuse("PATTERN: one quantifier is enough; put parentheses around what is to be repeated again")
        return repeat

    def _bounds(self, start: int) -> tuple[int, int | None]:
        low = self._number()
        high = low
        if self._take(","):
            high = self._number()
        elif low is None:
            self.refuse("PATTERN: expected a number in {}")
        self._expect("}", "to end a quantifier")
        if high is not None and (high == 0 or high < (low or 0)):
            text = self._text[start : self.start].strip()
            problem = "takes no row" if high == 0 else "has more at least than at most"
            raise StatementError(
                f"PATTERN: the quantifier {text} {problem}", text=self._text, start=start, end=start + len(text)
            )
        return low or 0, high

    def _number(self) -> int | None:
        if self.kind != "number":
            return None
        value = int(self.value) if len(self.value) < 10 else 10**9
        self._advance()
        return value
