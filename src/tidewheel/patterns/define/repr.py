"""The text form of a pattern, as code that makes it."""

from __future__ import annotations

from tidewheel.model.time import Duration
from tidewheel.model.windows import typed_back
from tidewheel.patterns.define.policy import Policy
from tidewheel.patterns.define.stages import Condition, Group, Part, Quantifier, Stage

__all__ = ["written"]


def written(parts: tuple[Part, ...], window: Duration | None, gap: Duration | None, policy: Policy) -> str:
    """The calls that make the pattern."""
    text = _sequence(parts)
    text += "" if window is None else f".within({typed_back(window)})"
    text += "" if gap is None else f".within({typed_back(gap)}, between='neighbours')"
    if policy.after_match != "skip none":
        options = [repr(policy.after_match)]
        options += [] if policy.stage is None else [f"stage={policy.stage!r}"]
        options += [] if policy.missing == "ignore" else [f"missing={policy.missing!r}"]
        text += f".after_match({', '.join(options)})"
    if policy.select != "each" or not policy.reuse:
        options = [repr(policy.select)] + ([] if policy.reuse else ["reuse=False"])
        text += f".select({', '.join(options)})"
    return text


def _sequence(parts: tuple[Part, ...]) -> str:
    text = ""
    for place, part in enumerate(parts):
        call = "pattern" if place == 0 else "." + _call(part)
        if isinstance(part, Stage):
            text += f"{call}({', '.join(_stage(part))})"
        elif part.kind == "sequence":
            text += f"{call}({_sequence(part.sequences[0])})"
        else:  # stands alone, as it is given to other calls
            text += f"{part.kind}({', '.join(map(_sequence, part.sequences))})"
        text += _quantifier(part.quantifier)
    return text


def _call(part: Part) -> str:
    if isinstance(part, Group) or not part.forbids:
        return part.contiguity
    return f"not_{part.contiguity}"


def _stage(stage: Stage) -> list[str]:
    given = [repr(stage.name)]
    if stage.condition is not None:
        given.append(_condition(stage.condition))
    if stage.within is not None:
        given.append(f"within={typed_back(stage.within)}")
    if stage.differs_in is not None:
        given.append(f"differs_in={stage.differs_in!r}")
    return given


def _condition(condition: Condition) -> str:
    expression = condition.expression
    return repr(expression.meta.root_names()[0]) if expression.meta.is_column() else repr(condition)


def _quantifier(quantifier: Quantifier) -> str:
    limit = "" if quantifier.within is None else f"within={typed_back(quantifier.within)}"
    text = ""
    if quantifier.most is None:
        text = f".one_or_more({limit})" if quantifier.least == 1 else f".at_least({_given(quantifier.least, limit)})"
    elif quantifier.least == quantifier.most != 1 or limit:
        text = f".times({_given(quantifier.least, limit)})"
    if quantifier.most is not None and quantifier.least != quantifier.most:
        text = f".times({_given(quantifier.least, quantifier.most, limit)})"
    text += {"next": ".consecutive()", "followed_by_any": ".combinations()"}.get(quantifier.inner, "")
    text += "" if quantifier.until is None else f".until({_condition(quantifier.until)})"
    text += ".greedy()" if quantifier.greedy else ""
    return text + (".optional()" if quantifier.optional else "")


def _given(*values: object) -> str:
    return ", ".join(str(value) for value in values if value != "")
