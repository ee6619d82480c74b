"""The words of a statement with their places, and a cursor over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NoReturn

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

from tidewheel.errors import StatementError

__all__ = ["Cursor", "closing", "split", "tokens_of", "word"]

_OPEN = {TokenType.L_PAREN: TokenType.R_PAREN, TokenType.L_BRACKET: TokenType.R_BRACKET}
_CLOSE = {*_OPEN.values()}


class _Words(Tokenizer):
    """Tokenizer for standard SQL, with quoted names in double quotes, and Spark's, in backticks."""

    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"', "`"]


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text; what has no end is refused."""
    try:
        return list(_Words().tokenize(text))
    except (SqlglotError, ValueError, IndexError) as error:
        reason = str(error).splitlines()[0] if str(error) else "it cannot be read"
        raise StatementError(f"the statement breaks off: {reason}", text=text, start=len(text)) from None


def word(token: Token) -> str:
    """The keyword that a token is (some are two words), in upper case; nothing for quoted names and strings."""
    quoted = token.token_type in (TokenType.IDENTIFIER, TokenType.STRING)
    return "" if quoted else " ".join(token.text.upper().split())


def closing(tokens: Sequence[Token], start: int) -> int | None:
    """The index of the parenthesis that closes the one at `start`."""
    depth = 0
    for index in range(start, len(tokens)):
        kind = tokens[index].token_type
        if kind == TokenType.L_PAREN:
            depth += 1
        elif kind == TokenType.R_PAREN:
            depth -= 1
            if depth == 0:
                return index
    return None


def split(tokens: Sequence[Token]) -> list[list[Token]]:
    """Split at commas outside of parentheses and brackets."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        if token.token_type == TokenType.COMMA and depth == 0:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


class Cursor:
    """Reads tokens one by one and says where one is wrong."""

    def __init__(self, text: str, tokens: Sequence[Token], end: int) -> None:
        self.text, self.tokens, self._end = text, tokens, end
        self.index = 0

    @property
    def now(self) -> Token | None:
        """The next token, if there is one."""
        return self.tokens[self.index] if self.index < len(self.tokens) else None

    def peek(self, ahead: int = 0) -> str:
        """The next word, in upper case."""
        index = self.index + ahead
        return word(self.tokens[index]) if 0 <= index < len(self.tokens) else ""

    def take(self, *words: str) -> bool:
        """Whether the next words are these; if so, goes past them."""
        if all(self.peek(ahead) == expected for ahead, expected in enumerate(words)):
            self.index += len(words)
            return True
        return False

    def expect(self, *words: str, after: str) -> None:
        """Skip these words, or refuse the token that is there instead."""
        for expected in words:
            if not self.take(expected):
                self.refuse(f"expected {' '.join(words)} after {after}, got {self.got()}")

    def name(self, what: str) -> Token:
        """Read a name, and go past it."""
        token = self.now
        if token is None or not (token.token_type == TokenType.IDENTIFIER or token.text.replace("_", "a").isalnum()):
            self.refuse(f"expected {what}, got {self.got()}")
        if token.text[:1].isdigit() and token.token_type != TokenType.IDENTIFIER:
            self.refuse(f"expected {what}, got {self.got()}")
        self.index += 1
        return token

    def group(self, what: str) -> tuple[int, int]:
        """Skip a group in parentheses; returns the indices of its content."""
        if self.peek() != "(":
            self.refuse(f"expected ( after {what}, got {self.got()}")
        end = closing(self.tokens, self.index)
        if end is None:
            self.refuse(f"the parenthesis after {what} is never closed")
        start, self.index = self.index + 1, end + 1
        return start, end

    def got(self) -> str:
        """The next token, for a message."""
        token = self.now
        return "the end" if token is None else self.text[token.start : token.end + 1]

    def refuse(self, message: str) -> NoReturn:
        """Raise an error about the next token."""
        token = self.now
        start, end = (self._end, self._end + 1) if token is None else (token.start, token.end + 1)
        raise StatementError(message, text=self.text, start=start, end=end)
