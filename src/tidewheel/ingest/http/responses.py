"""The answers to posted messages: what became of them, or why they were refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse

from tidewheel.ingest.connector import Delivered
from tidewheel.ingest.http.producers import RefusedError
from tidewheel.ingest.ingest_pb2 import HttpState

__all__ = ["delivery_response", "outcome_of", "refusal_response"]


def outcome_of(topics: Mapping[str, int], filtered: Mapping[str, int], dead: Mapping[str, int]) -> HttpState.Outcome:
    """What became of messages, counted."""
    return HttpState.Outcome(accepted=sum(topics.values()), filtered=sum(filtered.values()), dead=sum(dead.values()))


def delivery_response(
    received: int, outcome: HttpState.Outcome | None, delivered: Delivered, *, duplicate: bool
) -> JSONResponse:
    """The answer to a request that was delivered: what became of its messages; of one that is repeated what became of
    it the first time, if known."""
    content: dict[str, Any] = {
        "received": received,
        "counts": None
        if outcome is None
        else {"accepted": outcome.accepted, "filtered": outcome.filtered, "dead": outcome.dead},
        "topics": dict(delivered.topics),
        "filtered": dict(delivered.filtered),
        "dead": dict(delivered.dead),
        "reasons": list(delivered.reasons),
        "duplicate": duplicate,
    }
    if outcome is None or not received or outcome.dead < received:
        return JSONResponse(content)
    error = f"none of {received} messages was accepted: all are dead letters; fix them before they are sent again"
    return JSONResponse({"error": error, **content}, 422)


def refusal_response(refused: RefusedError) -> JSONResponse:
    """The answer to a request that is not delivered."""
    headers = {} if refused.retry_after is None else {"Retry-After": str(refused.retry_after)}
    return JSONResponse({"error": str(refused), **refused.more}, refused.status, headers=headers)
