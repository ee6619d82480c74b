"""Final stops from a routing service: GraphQL over HTTP, as Digitransit and OpenTripPlanner speak it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import tidewheel as tw
from tidewheel.ingest import Key, ProviderError, check_url, post
from tidewheel_transit.final_stop.definition import minute_of

__all__ = ["QUERY", "RoutingService"]

QUERY = """query FinalStop($route: String!, $direction: Int!, $date: String!, $time: Int!) {
  fuzzyTrip(route: $route, direction: $direction, date: $date, time: $time) { stops { gtfsId lat lon } }
}"""


class RoutingService:
    """Asks a routing service at `url` for the trip that departs then. `feed` is what the service puts before the ids of
    routes and stops; `key` is the subscription's, if the service wants one, sent in the header `key_header`.

    >>> RoutingService("https://routing.example/graphql", feed="HSL", key="secret")
    RoutingService('https://routing.example/graphql', feed='HSL')
    """

    def __init__(
        self,
        url: str,
        *,
        feed: str = "HSL",
        key: str | None = None,
        key_header: str = "digitransit-subscription-key",
    ) -> None:
        check_url(url)
        self._url = url
        self._feed = feed
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if key is not None:
            self._headers[key_header] = key

    async def ask(self, key: Key) -> Mapping[str, Any] | None:
        """Return the final stop of the journey (route, direction, operating day, start)."""
        route, direction, day, start = key
        try:
            seconds = minute_of(start) * 60
        except tw.errors.MalformedError as error:
            raise ProviderError(str(error), again=False, healthy=True) from None
        variables = {"route": f"{self._feed}:{route}", "direction": direction - 1, "date": day, "time": seconds}
        body = json.dumps({"query": QUERY, "variables": variables}).encode()
        response = await post(self._url, body, headers=self._headers)
        if response.status != 200:
            raise _refused(response.status, response.headers)
        return self._answer(response.body)

    def _answer(self, body: bytes) -> Mapping[str, Any] | None:
        try:
            answer = json.loads(body)
            if answer.get("errors"):
                raise ProviderError(f"the service reports: {str(answer['errors'][0]['message'])[:200]}")
            trip = answer["data"]["fuzzyTrip"]
            if trip is None or not trip["stops"]:
                return None
            last = trip["stops"][-1]
            stop = str(last["gtfsId"]).removeprefix(f"{self._feed}:")
            return {"final_stop": stop, "final_lat": float(last["lat"]), "final_lon": float(last["lon"])}
        except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
            raise ProviderError(f"the service's answer is invalid: {type(error).__name__}: {error}") from None

    def __repr__(self) -> str:
        return f"RoutingService({self._url!r}, feed={self._feed!r})"


def _refused(status: int, headers: Mapping[str, str]) -> ProviderError:
    after = headers.get("retry-after", "")
    # What is wrong with the request stays wrong; a server that is busy or broken may recover.
    busy = status in (408, 425, 429) or status >= 500
    known = {each.value: each.phrase for each in HTTPStatus}
    return ProviderError(
        f"the service answered {status} {known.get(status, '')}".rstrip(),
        again=busy,
        after=float(after) if after.isdecimal() else 0.0,
        healthy=False,
    )
