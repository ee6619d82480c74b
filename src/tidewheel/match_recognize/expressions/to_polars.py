"""SQL expressions as polars expressions, checked against the types of the columns when defined."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, NoReturn

import polars as pl
from polars.exceptions import PolarsError
from sqlglot import exp

from tidewheel.errors import StatementError
from tidewheel.match_recognize.expressions.arrays import ARRAYS, MAPS, is_map
from tidewheel.match_recognize.expressions.functions import (
    FUNCTIONS,
    arity,
    fits,
    quotient,
    remainder,
    text_of,
    truncated,
)
from tidewheel.match_recognize.expressions.sql_types import UTC, interval_of, like_pattern, type_of
from tidewheel.match_recognize.syntax.scalar import MARK, Span, span_of

__all__ = ["Columns", "find_column"]

_COMPARISONS: dict[type[exp.Expr], Callable[[Any, Any], pl.Expr]] = {
    exp.EQ: operator.eq,
    exp.NEQ: operator.ne,
    exp.LT: operator.lt,
    exp.LTE: operator.le,
    exp.GT: operator.gt,
    exp.GTE: operator.ge,
    exp.NullSafeEQ: lambda left, right: left.eq_missing(right),
    exp.NullSafeNEQ: lambda left, right: left.ne_missing(right),
}
_MIRRORED: dict[Any, Callable[[Any, Any], pl.Expr]] = {
    operator.lt: operator.gt,
    operator.le: operator.ge,
    operator.gt: operator.lt,
    operator.ge: operator.le,
}
_ARITHMETIC: dict[type[exp.Expr], Callable[[Any, Any], pl.Expr]] = {
    exp.Add: operator.add,
    exp.Sub: operator.sub,
    exp.Mul: operator.mul,
    exp.Div: quotient,
    exp.IntDiv: lambda left, right: pl.when(right != 0).then((left - remainder(left, right)) // right),
    exp.Mod: remainder,
    exp.BitwiseAnd: operator.and_,
    exp.BitwiseOr: operator.or_,
    exp.BitwiseXor: operator.xor,
}
_EXTRACTS = ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


def find_column(name: str, schema: Mapping[str, Any]) -> str | None:
    """Find the column of that name, as the schema writes it; case matters only where two columns differ by nothing
    else."""
    if name in schema:
        return name
    alike = [column for column in schema if column.lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


class Columns:
    """Translates trees over columns of a schema.

    span: where the whole expression stands in `text`, for parts that remember no place.
    """

    def __init__(self, schema: Mapping[str, pl.DataType], *, text: str, span: Span, what: str) -> None:
        self.schema = dict(schema)
        self._empty = pl.DataFrame(schema=self.schema)
        self.text, self._span, self.what = text, span, what

    def refuse(self, node: exp.Expr, message: str) -> NoReturn:
        """Refuse a part of the expression."""
        start, end = span_of(node, self._span)
        raise StatementError(f"{self.what}: {message}", text=self.text, start=start, end=end)

    def expression(self, node: exp.Expr) -> pl.Expr:
        """The polars expression of a tree; it works on the schema's columns, or the tree is refused."""
        made = self._translated(node)
        self.type_of(node, made)
        return made

    def type_of(self, node: exp.Expr, made: pl.Expr) -> pl.DataType:
        """The type of an expression; one that the columns' types do not allow is refused."""
        try:
            return self._empty.select(made.alias("it")).schema["it"]
        except (PolarsError, TypeError, ValueError, OverflowError) as error:
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            self.refuse(node, f"the types do not fit: {reason}")

    def boolean(self, node: exp.Expr) -> pl.Expr:
        """The expression of a condition."""
        made = self._translated(node)
        kind = self.type_of(node, made)
        if kind not in (pl.Boolean, pl.Null):
            self.refuse(node, f"a condition is true or false, this is {kind}")
        return made.cast(pl.Boolean)

    # Nodes -----------------------------------------------------------------------------------------------------

    def _translated(self, node: exp.Expr) -> pl.Expr:
        kind = type(node)
        if kind in _COMPARISONS:
            return self._compared(node, _COMPARISONS[kind], node.this, node.expression)
        if kind in _ARITHMETIC:
            return self._calculated(node, _ARITHMETIC[kind])
        method = getattr(self, f"_{kind.__name__.lower()}", None)
        if method is None:
            self.refuse(node, f"{node.sql()[:60]} is not known here")
        made: pl.Expr = method(node)
        return made

    def _paren(self, node: exp.Paren) -> pl.Expr:
        return self._translated(node.this)

    def _column(self, node: exp.Column) -> pl.Expr:
        name = find_column(str(node.this.this), self.schema)
        if name is None:
            known = ", ".join(column for column in self.schema if not column.startswith("__"))
            self.refuse(node, f"there is no column {node.this.this}, only {known}")
        return pl.col(name)

    def _dot(self, node: exp.Dot) -> pl.Expr:
        inner: exp.Expr = node
        while isinstance(inner, exp.Dot):
            inner = inner.this
        if isinstance(inner, exp.Column) and find_column(str(inner.this.this), self.schema) is None:
            known = ", ".join(column for column in self.schema if not column.startswith("__"))
            self.refuse(inner, f"{inner.this.this} is neither a variable of PATTERN nor a column; columns are {known}")
        whole = self._translated(node.this)
        kind = self.type_of(node.this, whole)
        if not isinstance(kind, pl.Struct):
            self.refuse(node, f"{node.this.sql()} has no fields, it is {kind}")
        name = find_column(str(node.expression.this), kind.to_schema())
        if name is None:
            fields = ", ".join(field.name for field in kind.fields)
            self.refuse(node, f"{node.this.sql()} has no field {node.expression.this}, only {fields}")
        return whole.struct.field(name)

    def _literal(self, node: exp.Literal) -> pl.Expr:
        text = str(node.this)
        if node.is_string:
            return pl.lit(text)
        try:
            return pl.lit(int(text) if text.isdigit() else float(text))
        except (ValueError, OverflowError):
            self.refuse(node, f"{text} is not a number")

    def _boolean(self, node: exp.Boolean) -> pl.Expr:
        return pl.lit(bool(node.this))

    def _null(self, node: exp.Null) -> pl.Expr:
        return pl.lit(None)

    def _neg(self, node: exp.Neg) -> pl.Expr:
        return -self._translated(node.this)

    def _not(self, node: exp.Not) -> pl.Expr:
        return ~self.boolean(node.this)

    def _and(self, node: exp.And) -> pl.Expr:
        return self.boolean(node.this) & self.boolean(node.expression)

    def _or(self, node: exp.Or) -> pl.Expr:
        return self.boolean(node.this) | self.boolean(node.expression)

    def _between(self, node: exp.Between) -> pl.Expr:
        low = self._compared(node, operator.ge, node.this, node.args["low"])
        high = self._compared(node, operator.le, node.this, node.args["high"])
        return low & high

    def _in(self, node: exp.In) -> pl.Expr:
        if not node.expressions:
            self.refuse(node, "IN takes a list of values")
        return reduce(operator.or_, [self._compared(node, operator.eq, node.this, one) for one in node.expressions])

    def _is(self, node: exp.Is) -> pl.Expr:
        value = self._translated(node.this)
        if isinstance(node.expression, exp.Null):
            return value.is_null()
        if not isinstance(node.expression, exp.Boolean):
            self.refuse(node, "IS is followed by NULL, TRUE, FALSE or DISTINCT FROM")
        return self.boolean(node.this).eq_missing(pl.lit(bool(node.expression.this)))

    def _like(self, node: exp.Expr, flags: str = "", escape: str | None = None) -> pl.Expr:
        pattern = node.expression
        if not isinstance(pattern, exp.Literal) or not pattern.is_string:
            self.refuse(node, "LIKE takes a pattern in quotes")
        matched = self._translated(node.this).str.contains(f"(?s{flags}){like_pattern(str(pattern.this), escape)}")
        return ~matched if node.args.get("negate") else matched

    def _ilike(self, node: exp.ILike) -> pl.Expr:
        return self._like(node, "i")

    def _escape(self, node: exp.Escape) -> pl.Expr:
        letter = str(node.expression.this)
        if not isinstance(node.this, (exp.Like, exp.ILike)) or len(letter) != 1:
            self.refuse(node, "ESCAPE stands after LIKE and names one letter")
        return self._like(node.this, "i" if isinstance(node.this, exp.ILike) else "", letter)

    def _regexplike(self, node: exp.RegexpLike) -> pl.Expr:
        matched = self._translated(node.this).str.contains(self._translated(node.expression))
        return ~matched if node.args.get("negate") else matched

    def _dpipe(self, node: exp.DPipe) -> pl.Expr:
        return text_of(self._translated(node.this)) + text_of(self._translated(node.expression))

    def _case(self, node: exp.Case) -> pl.Expr:
        chosen = self._translated(node.args["default"]) if node.args.get("default") is not None else pl.lit(None)
        for branch in reversed(node.args["ifs"]):
            if node.this is None:
                condition = self.boolean(branch.this)
            else:
                condition = self._compared(node, operator.eq, node.this, branch.this)
            chosen = pl.when(condition).then(self._translated(branch.args["true"])).otherwise(chosen)
        return chosen

    def _cast(self, node: exp.Cast, strict: bool = True) -> pl.Expr:
        target = type_of(node.args["to"])
        if target is None:
            self.refuse(node, f"CAST to {node.args['to'].sql()} is not known here")
        value = self._translated(node.this)
        kind = self.type_of(node.this, value)
        if kind == pl.String and isinstance(target, pl.Datetime):
            return value.str.to_datetime(time_unit="us", time_zone=target.time_zone, strict=strict)
        if kind == pl.String and target == pl.Date:
            return value.str.to_date(strict=strict)
        return value.cast(target, strict=strict)

    def _trycast(self, node: exp.TryCast) -> pl.Expr:
        return self._cast(node, strict=False)

    def _interval(self, node: exp.Interval) -> pl.Expr:
        length, months = interval_of(node)
        if length is None or months:
            self.refuse(node, "an interval is like INTERVAL '10' SECOND; months and years are only added to times")
        return pl.lit(length)

    def _extract(self, node: exp.Extract) -> pl.Expr:
        unit = str(node.this.this).upper()
        if unit not in _EXTRACTS:
            self.refuse(node, f"EXTRACT knows {', '.join(_EXTRACTS)}, got {unit}")
        return FUNCTIONS[unit][2](self._translated(node.expression))

    def _trim(self, node: exp.Trim) -> pl.Expr:
        value = self._translated(node.this).str
        letters = self._translated(node.expression) if node.expression else pl.lit(" ")
        side = str(node.args.get("position") or "BOTH").upper()
        if side == "LEADING":
            return value.strip_chars_start(letters)
        return value.strip_chars_end(letters) if side == "TRAILING" else value.strip_chars(letters)

    def _substring(self, node: exp.Substring) -> pl.Expr:
        arguments = [node.this, node.args.get("start") or exp.Literal.number(1), node.args.get("length")]
        return FUNCTIONS["SUBSTRING"][2](*[self._translated(one) for one in arguments if one is not None])

    def _strposition(self, node: exp.StrPosition) -> pl.Expr:
        return FUNCTIONS["STRPOS"][2](self._translated(node.this), self._translated(node.args["substr"]))

    def _array(self, node: exp.Array) -> pl.Expr:
        if not node.expressions:
            self.refuse(node, "ARRAY[] has no type; give it a value")
        return pl.concat_list([self._translated(one) for one in node.expressions])

    def _bracket(self, node: exp.Bracket) -> pl.Expr:
        if len(node.expressions) != 1:
            self.refuse(node, "[ ] takes one index")
        return self._call(node, "ELEMENT_AT", [node.this, node.expressions[0]])

    def _anonymous(self, node: exp.Anonymous) -> pl.Expr:
        name = str(node.this).removeprefix(MARK)
        if name == "DATE_TRUNC" and len(node.expressions) == 2 and isinstance(node.expressions[0], exp.Literal):
            cut = truncated(str(node.expressions[0].this), self._translated(node.expressions[1]))
            if cut is None:
                self.refuse(node.expressions[0], f"DATE_TRUNC knows no unit {node.expressions[0].this}")
            return cut
        return self._call(node, name, node.expressions) if name in FUNCTIONS else self._by_polars(node, name)

    def _call(self, node: exp.Expr, name: str, arguments: Sequence[exp.Expr]) -> pl.Expr:
        function = FUNCTIONS[name]
        made = [self._translated(one) for one in arguments]
        if made and isinstance(kind := self.type_of(arguments[0], made[0]), pl.List):
            function = (MAPS.get(name) if is_map(kind) else None) or ARRAYS.get(name, function)
        if not fits(function, arguments):
            self.refuse(node, f"{name} takes {arity(function)}, got {len(arguments)}")
        try:
            result = function[2](*made)
        except (PolarsError, TypeError, ValueError) as error:
            self.refuse(node, f"{name} cannot take that: {str(error).splitlines()[0]}")
        self.type_of(node, result)
        return result

    def _by_polars(self, node: exp.Anonymous, name: str) -> pl.Expr:
        """Call a function that only polars knows, with the arguments as columns, but literals as they are."""
        made: dict[str, pl.Expr] = {}
        texts = []
        for index, one in enumerate(node.expressions):
            if isinstance(one, (exp.Literal, exp.Boolean, exp.Null)):
                texts.append(one.sql())
            else:
                made[f"_{index}"] = self._translated(one)
                texts.append(f"_{index}")
        try:
            call = pl.sql_expr(f"{name}({', '.join(texts)})")
        except (PolarsError, TypeError, ValueError):
            self.refuse(node, f"there is no function {name}")
        if not made:
            return call
        whole = pl.struct(*[expression.alias(key) for key, expression in made.items()])
        frame = self._empty.select(**made)
        try:
            kind = frame.select(call.alias("it")).schema["it"]
        except PolarsError as error:
            self.refuse(node, f"{name} cannot take that: {str(error).splitlines()[0]}")

        def called(values: pl.Series) -> pl.Series:
            return values.struct.unnest().select(call.alias("it").cast(kind)).to_series()

        return whole.map_batches(called, return_dtype=kind)

    # Types that must meet --------------------------------------------------------------------------------------

    def _compared(
        self, node: exp.Expr, compare: Callable[[Any, Any], pl.Expr], left: exp.Expr, right: exp.Expr
    ) -> pl.Expr:
        one, other = self._met(left, right)
        if not one.meta.root_names() and other.meta.root_names():
            # polars would make one row of a constant compared with a column whose rows happen to be all the same.
            result = _MIRRORED.get(compare, compare)(other, one)
        else:
            result = compare(one, other)
        self.type_of(node, result)
        return result

    def _calculated(self, node: exp.Expr, calculate: Callable[[Any, Any], pl.Expr]) -> pl.Expr:
        if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
            _, months = interval_of(node.expression)
            if months:
                sign = "-" if isinstance(node, exp.Sub) else ""
                return self._translated(node.this).dt.offset_by(f"{sign}{months}mo")
        left, right = self._met(node.this, node.expression)
        result = calculate(left, right)
        self.type_of(node, result)
        return result

    def _met(self, left: exp.Expr, right: exp.Expr) -> Sequence[pl.Expr]:
        """Both sides, with text read as a time beside a time, times without a zone in UTC, and dates as times."""
        made = [self._translated(left), self._translated(right)]
        kinds = [self.type_of(left, made[0]), self.type_of(right, made[1])]
        for one, node in ((0, left), (1, right)):
            own, other = kinds[one], kinds[1 - one]
            if own == pl.String and isinstance(node, exp.Literal) and isinstance(other, pl.Datetime):
                made[one] = pl.lit(str(node.this)).str.to_datetime(time_unit="us", time_zone=other.time_zone)
            elif own == pl.String and isinstance(node, exp.Literal) and other == pl.Date:
                made[one] = pl.lit(str(node.this)).str.to_date()
            elif own == pl.Date and (isinstance(other, pl.Duration)):
                made[one] = made[one].cast(pl.Datetime("us"))
            elif own == pl.Date and isinstance(other, pl.Datetime):
                made[one] = made[one].cast(pl.Datetime("us")).dt.replace_time_zone(other.time_zone)
            elif isinstance(own, pl.Datetime) and isinstance(other, pl.Datetime) and own.time_zone != other.time_zone:
                if own.time_zone is None:
                    made[one] = made[one].dt.replace_time_zone(UTC)
                made[one] = made[one].dt.convert_time_zone(UTC)
        return made
