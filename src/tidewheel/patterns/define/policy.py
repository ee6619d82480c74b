"""What a match means for the others: where to go on after it, which of several to give, and whether they may share
events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from tidewheel.model.stored_fields import StoredFields

__all__ = ["ALL", "AfterMatch", "Missing", "Policy", "Select"]

AfterMatch = Literal["skip none", "skip to next", "skip past last", "skip to first", "skip to last"]
Select = Literal["each", "first", "last"]
Missing = Literal["ignore", "fail"]


@dataclass(frozen=True, slots=True)
class Policy:
    """after_match: which partial matches a match ends: none; those that began with the same event; those that began
    before its end; those that began before the first or the last event of `stage`.
    select: which of the matches that begin with the same event are given.
    reuse: whether an event may be in several matches.
    missing: what to do if a match has no event of `stage`.
    """

    stable_name: ClassVar[str] = "pattern.policy/1"
    stored: ClassVar[StoredFields] = StoredFields("after_match", "stage", "missing", "select", "reuse")

    after_match: AfterMatch = "skip none"
    stage: str | None = None
    missing: Missing = "ignore"
    select: Select = "each"
    reuse: bool = True

    @property
    def independent(self) -> bool:
        """Whether no match has a say in any other."""
        return self.after_match == "skip none" and self.select == "each" and self.reuse


ALL = Policy()
