"""The references of an expression in a clause: rows of the match by navigation, aggregates over them, the match's
number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from sqlglot import exp

from tidewheel.errors import StatementError
from tidewheel.match_recognize.expressions.aggregates import AGGREGATES
from tidewheel.match_recognize.syntax.constants import without_queries
from tidewheel.match_recognize.syntax.scalar import MARK, Scalar, Span, span_of

if TYPE_CHECKING:
    from tidewheel.match_recognize.syntax.clause import Clause

__all__ = ["LABEL", "NUMBER", "Aggregate", "Expression", "MatchNumber", "Navigation", "Reference", "analyse"]
__all__ += ["check_references", "rebuilt"]

LABEL = "__label"
"""The column that says which variable a row was mapped to."""
NUMBER = "__match_number"
"""The column that says to which match a row belongs."""

_NESTED = "PREV and NEXT take FIRST and LAST, but no other nesting"


@dataclass(frozen=True, slots=True)
class Navigation:
    """A value of one row: the first or last of some variables, `offset` further in, then `physical` rows on.

    variables: None for all. argument: a tree over columns of that row.
    """

    variables: frozenset[str] | None
    first: bool
    offset: int
    physical: int
    final: bool
    argument: exp.Expr = field(compare=False, repr=False)
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """A value over the rows of some variables; no arguments: their count."""

    function: str
    variables: frozenset[str] | None
    final: bool
    distinct: bool
    arguments: tuple[exp.Expr, ...] = field(compare=False, repr=False)
    where: exp.Expr | None = field(compare=False, repr=False)
    span: Span = (0, 0)


@dataclass(frozen=True, slots=True)
class MatchNumber:
    """The number of the match in its partition, from 1."""

    span: Span = (0, 0)


Reference = Navigation | Aggregate | MatchNumber


@dataclass(frozen=True, slots=True)
class Expression:
    """A tree over columns named by `references`, which hold what is known of a match."""

    tree: exp.Expr = field(compare=False, repr=False)
    references: dict[str, Reference]
    span: Span


def check_references(clause: Clause) -> None:
    """Refuse what refers to variables that are not there, nests what cannot be, or is final before the end."""
    for measure in clause.measures:
        analyse(measure.value, clause, what=f"the measure {measure.name}")
    for name, condition in clause.define.items():
        analyse(condition, clause, what=f"the condition of {name}", in_define=True)


def analyse(scalar: Scalar, clause: Clause, *, what: str, in_define: bool = False) -> Expression:
    """Split an expression into what it refers to and the scalar over it."""
    analysis = _Analysis(clause, scalar, what, in_define)
    try:
        tree = analysis.scalar(without_queries(scalar, clause.text))
    except RecursionError:
        analysis.refuse(scalar.tree, "it is nested too deep")
    return Expression(tree, analysis.references, scalar.span)


def rebuilt(node: exp.Expr, visit: Callable[[exp.Expr], exp.Expr]) -> exp.Expr:
    """The same node over visited children."""

    def visited(value: object) -> object:
        if isinstance(value, list):
            return [visited(one) for one in value]
        return visit(value) if isinstance(value, exp.Expr) else value

    new = node.__class__(**{name: visited(value) for name, value in node.args.items()})
    new.meta.update(node.meta)
    return new


def _called(node: exp.Expr) -> str:
    """The name of the function that a node calls, or nothing."""
    return str(node.this).removeprefix(MARK) if isinstance(node, exp.Anonymous) else ""


class _Analysis:
    def __init__(self, clause: Clause, scalar: Scalar, what: str, in_define: bool) -> None:
        self._clause, self._span, self._what, self._in_define = clause, scalar.span, what, in_define
        self._members = {name: frozenset((name,)) for name in clause.variables}
        self._members |= {name: frozenset(members) for name, members in clause.subsets.items()}
        self.references: dict[str, Reference] = {}

    def refuse(self, node: exp.Expr, message: str) -> NoReturn:
        start, end = span_of(node, self._span)
        raise StatementError(f"{self._what}: {message}", text=self._clause.text, start=start, end=end)

    # Outside of navigation and aggregates ----------------------------------------------------------------------

    def scalar(self, node: exp.Expr) -> exp.Expr:
        name = _called(node)
        if isinstance(node, (exp.Column, exp.Dot)) or name == "CLASSIFIER":
            return self._navigation(node, node, first=False, final=False)
        if name == "MATCH_NUMBER":
            self._no_arguments(node)
            return self._reference(MatchNumber(span_of(node, self._span)))
        if name in ("RUNNING", "FINAL"):
            return self._semantics(node, final=name == "FINAL")
        if name in ("PREV", "NEXT"):
            return self._physical(node, 1 if name == "NEXT" else -1)
        if name in ("FIRST", "LAST"):
            return self._logical(node, final=False)
        if name in AGGREGATES or isinstance(node, exp.Filter):
            return self._aggregate(node, final=False)
        if isinstance(node, exp.Window):
            self.refuse(node, "OVER is not for MATCH_RECOGNIZE: an aggregate is over the rows of the match")
        if isinstance(node, exp.Star):
            self.refuse(node, "* stands only in count(*) and count(A.*)")
        return rebuilt(node, self.scalar)

    def _reference(self, reference: Reference) -> exp.Expr:
        name = f"__ref_{len(self.references)}"
        self.references[name] = reference
        identifier = exp.Identifier(this=name, quoted=True)
        identifier.meta.update(start=reference.span[0], end=reference.span[1] - 1)
        return exp.Column(this=identifier)

    def _semantics(self, node: exp.Expr, *, final: bool) -> exp.Expr:
        if final and self._in_define:
            self.refuse(node, "FINAL is for MEASURES: in DEFINE the match has not ended")
        inner = node.expressions[0]
        if _called(inner) in ("FIRST", "LAST"):
            return self._logical(inner, final=final)
        if _called(inner) not in AGGREGATES:
            self.refuse(node, "RUNNING and FINAL stand before FIRST, LAST and aggregates")
        return self._aggregate(inner, final=final)

    def _physical(self, node: exp.Expr, sign: int) -> exp.Expr:
        argument, offset = self._offset(node, default=1)
        final = first = False
        further = 0
        if _called(argument) in ("RUNNING", "FINAL"):
            final = _called(argument) == "FINAL"
            if final and self._in_define:
                self.refuse(argument, "FINAL is for MEASURES: in DEFINE the match has not ended")
            argument = argument.expressions[0]
            if _called(argument) not in ("FIRST", "LAST"):
                self.refuse(argument, _NESTED)
        if _called(argument) in ("FIRST", "LAST"):
            first = _called(argument) == "FIRST"
            argument, further = self._offset(argument, default=0)
        return self._navigation(node, argument, first=first, final=final, offset=further, physical=sign * offset)

    def _logical(self, node: exp.Expr, *, final: bool) -> exp.Expr:
        argument, offset = self._offset(node, default=0)
        return self._navigation(node, argument, first=_called(node) == "FIRST", final=final, offset=offset)

    def _offset(self, node: exp.Expr, default: int) -> tuple[exp.Expr, int]:
        arguments = node.expressions
        name = _called(node)
        if not 1 <= len(arguments) <= 2:
            self.refuse(node, f"{name} takes an expression and, if wanted, a number of rows")
        if len(arguments) == 1:
            return arguments[0], default
        number = arguments[1]
        if not isinstance(number, exp.Literal) or number.is_string or not str(number.this).isdigit():
            self.refuse(number, f"{name} takes a whole number of rows that is not negative")
        return arguments[0], int(str(number.this))

    def _navigation(
        self,
        node: exp.Expr,
        argument: exp.Expr,
        *,
        first: bool,
        final: bool,
        offset: int = 0,
        physical: int = 0,
    ) -> exp.Expr:
        row = _Row(self, argument, "a navigation")
        tree = row.visit(argument)
        span = span_of(node, self._span)
        return self._reference(Navigation(row.variables(), first, offset, physical, final, tree, span))

    def _aggregate(self, node: exp.Expr, *, final: bool) -> exp.Expr:
        where = None
        call = node
        if isinstance(node, exp.Filter):
            call, where = node.this, node.expression.this
            if _called(call) in ("RUNNING", "FINAL"):
                final, call = _called(call) == "FINAL", call.expressions[0]
                if final and self._in_define:
                    self.refuse(node, "FINAL is for MEASURES: in DEFINE the match has not ended")
        name = _called(call)
        if name not in AGGREGATES:
            self.refuse(node, "FILTER stands after an aggregate")
        arguments = call.expressions
        distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
        if distinct:
            arguments = arguments[0].expressions
        row = _Row(self, node, "an aggregate")
        if name == "COUNT" and len(arguments) <= 1 and not distinct and (not arguments or arguments[0].is_star):
            if arguments:
                row.star(arguments[0])
            trees: tuple[exp.Expr, ...] = ()
        else:
            trees = tuple(row.visit(argument) for argument in arguments)
            name = self._checked(node, name, len(trees))
        condition = row.visit(where) if where is not None else None
        span = span_of(node, self._span)
        return self._reference(Aggregate(name, row.variables(), final, distinct, trees, condition, span))

    def _checked(self, node: exp.Expr, name: str, given: int) -> str:
        """The aggregate of that name and number of arguments."""
        least, most = AGGREGATES[name].arguments
        several = AGGREGATES[name].several
        if several is not None and given == most + 1:
            return several
        if not least <= given <= most:
            most += several is not None
            wanted = str(least) if least == most else f"{least} or {most}"
            self.refuse(node, f"{name.lower()} takes {wanted} argument{'s' if most > 1 else ''}, got {given}")
        return name

    def _no_arguments(self, node: exp.Expr) -> None:
        if node.expressions:
            self.refuse(node, f"{_called(node)} takes no arguments")

    # Shared with what is inside --------------------------------------------------------------------------------

    def qualified(self, node: exp.Expr) -> tuple[str | None, exp.Expr]:
        """The variable before a column, if there is one, and the column without it."""
        parts: list[exp.Expr] = []
        while isinstance(node, exp.Dot):
            parts.insert(0, node.expression)
            node = node.this
        if not isinstance(node, exp.Column):
            return None, node
        parts = [*node.parts, *parts]
        variable = None
        if len(parts) > 1 and (name := self.variable(parts[0])) in self._members:
            variable, parts = name, parts[1:]
        column: exp.Expr = exp.Column(this=parts[0].copy())
        for field_name in parts[1:]:
            column = exp.Dot(this=column, expression=field_name.copy())
        return variable, column

    def variable(self, identifier: exp.Expr) -> str:
        """A variable's name as it was written."""
        return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).upper()

    def members(self, name: str, node: exp.Expr) -> frozenset[str]:
        """The variables that a name stands for."""
        if name not in self._members:
            self.refuse(node, f"PATTERN has no variable {name}, only {', '.join(self._members)}")
        return self._members[name]


class _Row:
    """The argument of a navigation or an aggregate: a scalar over one row, all of one variable."""

    def __init__(self, analysis: _Analysis, node: exp.Expr, inside: str) -> None:
        self._analysis, self._node, self._inside = analysis, node, inside
        self._named: dict[frozenset[str] | None, str] = {}

    def variables(self) -> frozenset[str] | None:
        if len(self._named) > 1:
            names = " and ".join(dict.fromkeys(self._named.values()))
            self._analysis.refuse(
                self._node, f"{self._inside} is over the rows of one variable, but this names {names}; use a SUBSET"
            )
        return next(iter(self._named), None)

    def visit(self, node: exp.Expr) -> exp.Expr:
        name = _called(node)
        if isinstance(node, (exp.Column, exp.Dot)):
            return self._column(node)
        if name == "CLASSIFIER":
            return self._classifier(node)
        if name == "MATCH_NUMBER":
            if node.expressions:
                self._analysis.refuse(node, "MATCH_NUMBER takes no arguments")
            return exp.Column(this=exp.Identifier(this=NUMBER, quoted=True))
        if name in ("PREV", "NEXT", "FIRST", "LAST", "RUNNING", "FINAL"):
            hint = _NESTED if self._inside == "a navigation" else "navigation does not stand inside an aggregate"
            self._analysis.refuse(node, hint)
        if name in AGGREGATES or isinstance(node, (exp.Filter, exp.Window)):
            self._analysis.refuse(node, f"an aggregate does not stand inside {self._inside}")
        if isinstance(node, exp.Star):
            self._analysis.refuse(node, "* stands only in count(*) and count(A.*)")
        return rebuilt(node, self.visit)

    def star(self, node: exp.Expr) -> None:
        """Note of which variable count(A.*) counts the rows."""
        if isinstance(node, exp.Column):
            name = self._analysis.variable(node.parts[0])
            self._named[self._analysis.members(name, node)] = name

    def _column(self, node: exp.Expr) -> exp.Expr:
        if node.is_star:
            self._analysis.refuse(node, "* stands only in count(*) and count(A.*)")
        variable, column = self._analysis.qualified(node)
        if isinstance(column, (exp.Column, exp.Dot)):
            members = None if variable is None else self._analysis.members(variable, node)
            self._named[members] = variable or "all rows"
            return column
        return rebuilt(node, self.visit)

    def _classifier(self, node: exp.Expr) -> exp.Expr:
        arguments = node.expressions
        if not arguments:
            self._named[None] = "all rows"
        elif len(arguments) == 1 and isinstance(arguments[0], exp.Column) and len(arguments[0].parts) == 1:
            name = self._analysis.variable(arguments[0].parts[0])
            self._named[self._analysis.members(name, node)] = name
        else:
            self._analysis.refuse(node, "CLASSIFIER takes one variable of the pattern, or nothing")
        return exp.Column(this=exp.Identifier(this=LABEL, quoted=True))
