"""The hub: ten times a second, what has changed goes to every client that wants to see it.

No client has a queue. Who has not taken the last frame when the next is there is behind, and gets a fresh snapshot once
it can take one: the latest state, however long it was away.

What a tick brings is chosen and put together in a thread of its own, so that however many different things are looked
at, the event loop goes on; when that takes longer than a tick, ticks are rarer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tidewheel.errors import TidewheelError, panics_as_errors
from tidewheel.model.time import Instant
from tidewheel.model.time import now as wall_clock
from tidewheel.serve.http.limits import ServeLimits
from tidewheel.serve.layers.layer import Layer
from tidewheel.serve.view import frame as frames
from tidewheel.serve.view.feed import Feed
from tidewheel.serve.view.frame import Frame
from tidewheel.serve.view.map_item import Item, Pool
from tidewheel.serve.view.subscription import Subscription
from tidewheel.serve.view.view import Change

__all__ = ["Client", "CrowdedError", "Hub"]

_logger = logging.getLogger(__name__)
_TICK = 0.1
_PAUSE = 0.02
"""What a tick leaves to everything else at least."""
_STATUS_TICKS = 10
_SNAPSHOT_BYTES = 16 << 20


class CrowdedError(TidewheelError):
    """There are as many different subscriptions as the server takes."""


@dataclass(frozen=True, slots=True)
class _Tick:
    """The frames of one tick."""

    now: Instant
    renewed: AbstractSet[str]
    bodies: Mapping[Subscription, bytes]
    updates: Mapping[Subscription, Frame | None]


class Client:
    """A client that follows the live view. `send` takes a frame and returns when there is room for the next."""

    def __init__(self, send: Callable[[Frame], Awaitable[None]]) -> None:
        self._send = send
        self.on_close: Callable[[], object] = lambda: None
        self._outbox: list[Frame] = []
        self._wake = asyncio.Event()
        self.answered = asyncio.Event()
        """Set when the snapshot of the latest subscription is on its way, or never will be."""
        self.subscription: Subscription | None = None
        self.asked: int | str | None = None
        self.fresh = False
        """Wants a snapshot: it has just subscribed, or is behind."""
        self.version = 0
        """The version of the layers that it has seen."""
        self.busy = False
        self.closed = False

    def offer(self, outbox: list[Frame]) -> None:
        """Queue frames to be sent. It must not be busy."""
        self._outbox, self.busy = outbox, True
        self._wake.set()

    async def run(self) -> None:
        """Send offered frames until sending fails."""
        try:
            while not self.closed:
                await self._wake.wait()
                self._wake.clear()
                for each in self._outbox:
                    await self._send(each)
                self._outbox, self.busy = [], False
        finally:
            self.close()

    def close(self) -> None:
        """Send nothing more."""
        if not self.closed:
            self.on_close()
        self.closed = True
        self._wake.set()
        self.answered.set()


class Hub:
    """All clients, and their shared frames."""

    def __init__(self, feed: Feed, *, limits: ServeLimits, clock: Callable[[], Instant] = wall_clock) -> None:
        self._feed = feed
        self._limits = limits
        self._clock = clock
        self._clients: set[Client] = set()
        self._groups: dict[Subscription, set[Client]] = {}
        self._ticks = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing = asyncio.Event()
        self.frames_sent = 0
        """Running totals: frames offered to clients, their bytes, and snapshots for those that were behind."""
        self.bytes_sent = 0
        self.caught_up = 0
        self.refused = 0
        """Subscriptions beyond the limit, ever."""

    @property
    def subscriptions(self) -> int:
        """The number of different subscriptions."""
        return len(self._groups)

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def clients(self) -> list[Client]:
        """The clients that are connected."""
        return list(self._clients)

    @property
    def full(self) -> bool:
        """Whether the limit of clients is reached."""
        return len(self._clients) >= self._limits.clients

    @property
    def behind(self) -> int:
        """The number of clients that have missed a frame, and get a fresh snapshot once they are ready."""
        return sum(client.fresh and client.answered.is_set() for client in self.clients)

    def hello(self) -> Frame:
        """The frame that greets a client, and comes again when the layers have changed."""
        layers = [layer.description() for layer in self._feed.layers.values()]
        return frames.hello(layers, now=self._clock(), speed=self._feed.view.speed, limits=self._limits.for_clients())

    def add(self, client: Client, version: int) -> None:
        """Register a client that has seen this version of the layers."""
        client.version = version
        self._clients.add(client)

    def remove(self, client: Client) -> None:
        """Remove a client that has gone."""
        client.close()
        self._leave(client)
        self._clients.discard(client)

    def subscribe(self, client: Client, subscription: Subscription, id: int | str | None = None) -> list[str]:
        """Replace what the client has subscribed to. Returns the names of layers that are not there.

        `CrowdedError` if nobody else has this subscription, and the server takes no more different ones: then the
        client keeps the one that it has.
        """
        self.check_room(subscription, client)
        self._leave(client)
        client.subscription, client.asked, client.fresh = subscription, id, True
        client.answered.clear()
        self._groups.setdefault(subscription, set()).add(client)
        return [name for name in subscription.layers if name not in self._feed.layers]

    def check_room(self, subscription: Subscription, client: Client | None = None) -> None:
        """Raise `CrowdedError` if this client, or a new one, cannot have this subscription."""
        before = None if client is None else client.subscription
        alone = before is not None and len(self._groups[before]) == 1
        if subscription not in self._groups and len(self._groups) - alone >= self._limits.subscriptions:
            self.refused += 1
            raise CrowdedError(
                f"this server shows at most {self._limits.subscriptions} different choices of layers, region and "
                "filters at a time, and nobody has this one: choose what others look at, or try again later"
            )

    def _leave(self, client: Client) -> None:
        if client.subscription is not None:
            group = self._groups[client.subscription]
            group.discard(client)
            if not group:
                del self._groups[client.subscription]
            client.subscription = None

    async def run(self) -> None:
        """Tick until it is closed."""
        loop = self._loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, thread_name_prefix="hub") as worker:
            while not self.closing.is_set():
                began = loop.time()
                try:
                    wanted = {each for each, clients in self._groups.items() if any(map(_takes, clients))}
                    with panics_as_errors():
                        tick = await loop.run_in_executor(worker, self._prepare, [*self._groups], wanted)
                        self._hand_out(tick)
                except Exception:  # one bad tick must not end all that follow; clients would be left without a word
                    _logger.exception("a tick of the live view failed; clients get a fresh snapshot")
                    for client in self._clients:
                        client.fresh = client.subscription is not None
                await asyncio.sleep(max(_PAUSE, _TICK - (loop.time() - began)))

    def close_soon(self) -> None:
        """Ask for an end, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """Disconnect all clients."""
        self.closing.set()
        for client in list(self._clients):
            self.remove(client)

    def _prepare(self, subscriptions: list[Subscription], wanted: set[Subscription]) -> _Tick:
        """Collect, for each subscription, what has changed since the last tick, and the requested snapshots."""
        now = self._clock()
        view = self._feed.view
        with self._feed.lock:
            view.expire(self._feed.activity.clock(now))
            changes = view.changes()
            renewed = view.renewed()
            again = {each for each in subscriptions if not renewed.isdisjoint(each.layers)}
            chosen = self._snapshots([each for each in subscriptions if each in wanted or each in again])
            described = {name: view[name].layer for name in changes}
        pools = {name: _pools(pairs) for name, pairs in changes.items()}
        updates = {each: _update(each, described, pools, now) for each in subscriptions} if pools else {}
        bodies: dict[Subscription, bytes] = {}
        size = 0
        for each, items in chosen:
            bodies[each] = frames.snapshot_body(items(), now=now)
            size += len(bodies[each])
            if size >= _SNAPSHOT_BYTES:  # when all come at once, some wait for the next tick
                break
        return _Tick(now, renewed, bodies, updates)

    def _hand_out(self, tick: _Tick) -> None:
        """Offer frames to all clients that can take them. A client that has subscribed meanwhile, to what no other had
        asked for, waits for the next tick."""
        self._renew(tick.renewed)
        bodies, updates = tick.bodies, tick.updates
        version = self._feed.version
        hello = self.hello() if any(client.version != version for client in self._clients) else None
        shared = self._status(tick.now)
        for client in self._clients:
            subscription = client.subscription
            news = None if subscription is None else updates.get(subscription)
            if client.busy:
                client.fresh |= news is not None
                continue
            outbox = [*shared]
            if client.version != version and hello is not None:
                outbox.append(hello)
                client.version = version
            if client.fresh:
                if subscription is not None and subscription in bodies:
                    outbox.append(frames.snapshot(client.asked, bodies[subscription]))
                    self.caught_up += client.answered.is_set()
                    client.fresh, client.asked = False, None
                    client.answered.set()
            elif news is not None:
                outbox.append(news)
            if outbox:
                self.frames_sent += len(outbox)
                self.bytes_sent += sum(len(each.body) for each in outbox)
                client.offer(outbox)

    def _renew(self, layers: AbstractSet[str]) -> None:
        """Give clients that see one of these layers a fresh snapshot."""
        for subscription, clients in self._groups.items():
            if not layers.isdisjoint(subscription.layers):
                for client in clients:
                    client.fresh = True

    def _status(self, now: Instant) -> list[Frame]:
        """The frame of the status, once a second."""
        self._ticks += 1
        if self._ticks % _STATUS_TICKS != 1:
            return []
        return [frames.status(self._feed.status.latest, now=now, clients=len(self), partial=self._feed.partial)]

    def _snapshots(
        self, subscriptions: list[Subscription]
    ) -> list[tuple[Subscription, Callable[[], dict[str, list[Item]]]]]:
        """Functions that make the items of each subscription later: only the current items are collected while the lock
        is held."""
        pools: dict[str, Pool] = {}
        views = {name for each in subscriptions for name in each.layers}
        layers = {name: view.layer for name, view in self._feed.view.chosen(views).items()}
        for name, view in self._feed.view.chosen(views).items():
            pools[name] = Pool(list(view.items.values()))

        def items(subscription: Subscription) -> dict[str, list[Item]]:
            return {
                name: subscription.choose(layers[name], pools[name]) for name in subscription.layers if name in pools
            }

        return [(each, partial(items, each)) for each in subscriptions]

    def chosen(self, subscription: Subscription) -> Callable[[], dict[str, list[Item]]]:
        """A function that makes the items that a subscription shows now; the feed's lock is held, and not needed for
        that."""
        ((_, items),) = self._snapshots([subscription])
        return items


def _takes(client: Client) -> bool:
    """Whether a client wants a snapshot, and can take one."""
    return client.fresh and not client.busy


def _update(
    subscription: Subscription,
    layers: Mapping[str, Layer],
    pools: Mapping[str, tuple[Pool, Pool]],
    now: Instant,
) -> Frame | None:
    changed: dict[str, list[Item]] = {}
    gone: dict[str, list[str]] = {}
    for name in subscription.layers:
        if name in pools:
            shown, lost = subscription.changed(layers[name], *pools[name])
            if shown:
                changed[name] = shown
            if lost:
                gone[name] = lost
    return frames.update(changed, gone, now=now) if changed or gone else None


def _pools(pairs: list[Change]) -> tuple[Pool, Pool]:
    return Pool([old for old, _ in pairs]), Pool([new for _, new in pairs])
