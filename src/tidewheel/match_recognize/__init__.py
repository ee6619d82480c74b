"""SQL's MATCH_RECOGNIZE (row pattern recognition of SQL:2016) over frames of rows: parsing and evaluation.

>>> import polars as pl
>>> statement = parse('''
...     SELECT vehicle, drop FROM positions MATCH_RECOGNIZE (
...         PARTITION BY vehicle ORDER BY at
...         MEASURES FIRST(F.speed) - LAST(S.speed) AS drop
...         PATTERN (F B+ S) DEFINE F AS speed >= 10, B AS acc < 0, S AS speed < 1)''')
>>> positions = pl.DataFrame(
...     {"vehicle": [7] * 4, "at": [1, 2, 3, 4], "speed": [12.0, 6.0, 2.0, 0.5], "acc": [0.0, -6.0, -4.0, -1.5]})
>>> ClauseMatcher(statement.clause, positions.schema).run(positions).rows()
[(7, 11.5)]
"""

from tidewheel.match_recognize.matching.matcher import ClauseMatcher
from tidewheel.match_recognize.matching.partitions import State
from tidewheel.match_recognize.syntax.clause import Clause, ColumnName, Measure, OrderBy, Skip
from tidewheel.match_recognize.syntax.scalar import Scalar
from tidewheel.match_recognize.syntax.statement import Recognition, Statement, has_match_recognize, parse

__all__ = [
    "Clause",
    "ColumnName",
    "Measure",
    "OrderBy",
    "ClauseMatcher",
    "Recognition",
    "Scalar",
    "Skip",
    "State",
    "Statement",
    "has_match_recognize",
    "parse",
]
