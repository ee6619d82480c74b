"""The hub: ten times a second, what has changed goes to every client that wants to see it.

No client has a queue. Who has not taken the last frame when the next is there is behind, and gets a fresh snapshot once
it can take one: the latest state, however long it was away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress

from tidewheel.model.time import Instant
from tidewheel.model.time import now as wall_clock
from tidewheel.serve import frame as frames
from tidewheel.serve.feed import Feed
from tidewheel.serve.frame import Frame
from tidewheel.serve.item import Item, Pool
from tidewheel.serve.limits import Limits
from tidewheel.serve.subscription import Subscription
from tidewheel.serve.view import Change

__all__ = ["Client", "Hub"]

_logger = logging.getLogger(__name__)
_TICK = 0.1
_PAUSE = 0.02
"""What a tick leaves to everything else at least."""
_STATUS_TICKS = 10
_SNAPSHOT_BYTES = 16 << 20


class Client:
    """Somebody who looks on. `send` takes a frame and returns when there is room for the next."""

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
        """Of the layers that it was told of."""
        self.busy = False
        self.closed = False

    def offer(self, outbox: list[Frame]) -> None:
        """Frames to be sent. It must not be busy."""
        self._outbox, self.busy = outbox, True
        self._wake.set()

    async def run(self) -> None:
        """Send what is offered, until it cannot be."""
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
        """Nothing more is sent."""
        if not self.closed:
            self.on_close()
        self.closed = True
        self._wake.set()
        self.answered.set()


class Hub:
    """All clients, and what they share."""

    def __init__(self, feed: Feed, *, limits: Limits, clock: Callable[[], Instant] = wall_clock) -> None:
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

    def __len__(self) -> int:
        return len(self._clients)

    @property
    def clients(self) -> list[Client]:
        """Who is there."""
        return list(self._clients)

    @property
    def full(self) -> bool:
        """Is there no room for another?"""
        return len(self._clients) >= self._limits.clients

    @property
    def behind(self) -> int:
        """How many have missed something, and get a fresh snapshot once they can take one."""
        return sum(client.fresh and client.answered.is_set() for client in self._clients)

    def hello(self) -> Frame:
        """The first word to a client, and a later one when the layers have changed."""
        layers = [layer.description() for layer in self._feed.layers.values()]
        return frames.hello(layers, now=self._clock(), speed=self._feed.view.speed, limits=self._limits.told())

    def add(self, client: Client, version: int) -> None:
        """Somebody has come, who has been told hello when the layers were of this version."""
        client.version = version
        self._clients.add(client)

    def remove(self, client: Client) -> None:
        """Somebody has gone."""
        client.close()
        self._leave(client)
        self._clients.discard(client)

    def subscribe(self, client: Client, subscription: Subscription, id: int | str | None = None) -> list[str]:
        """In place of what the client has subscribed to. Returns the names of layers that are not there."""
        self._leave(client)
        client.subscription, client.asked, client.fresh = subscription, id, True
        client.answered.clear()
        self._groups.setdefault(subscription, set()).add(client)
        return [name for name in subscription.layers if name not in self._feed.layers]

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
        while not self.closing.is_set():
            began = loop.time()
            try:
                self.tick()
            except Exception:  # one bad tick must not end all that follow; clients would be left without a word
                _logger.exception("a tick of the live view failed; clients get a fresh snapshot")
                for client in self._clients:
                    client.fresh = client.subscription is not None
            await asyncio.sleep(max(_PAUSE, _TICK - (loop.time() - began)))

    def close_soon(self) -> None:
        """Close, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended already
                self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """Let all go."""
        self.closing.set()
        for client in list(self._clients):
            self.remove(client)

    def tick(self) -> None:
        """What has changed since the last tick, to all."""
        now = self._clock()
        view = self._feed.view
        with self._feed.lock:
            view.expire(now)
            changes = view.changes()
            self._renew(view.renewed())
            bodies = self._snapshots(now)
        version = self._feed.version
        hello = self.hello() if any(client.version != version for client in self._clients) else None
        shared = self._status(now)
        pools = {name: _pools(pairs) for name, pairs in changes.items()}
        updates = {each: self._update(each, pools, now) for each in self._groups}
        for client in self._clients:
            subscription = client.subscription
            news = None if subscription is None else updates[subscription]
            if client.busy:
                client.fresh |= news is not None
                continue
            outbox = [*shared]
            if client.version != version and hello is not None:
                outbox.append(hello)
                client.version = version
            if client.fresh:
                if subscription in bodies:
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
        """Those who look at one of these layers get a fresh snapshot."""
        for subscription, clients in self._groups.items():
            if not layers.isdisjoint(subscription.layers):
                for client in clients:
                    client.fresh = True

    def _status(self, now: Instant) -> list[Frame]:
        """Once a second."""
        self._ticks += 1
        if self._ticks % _STATUS_TICKS != 1:
            return []
        return [frames.status(self._feed.status.latest, now=now, clients=len(self))]

    def _snapshots(self, now: Instant) -> dict[Subscription | None, bytes]:
        """For those who can take one now, as many as fit into a tick: when all come at once, some wait for the next."""
        wanted = [
            subscription
            for subscription, clients in self._groups.items()
            if any(client.fresh and not client.busy for client in clients)
        ]
        pools: dict[str, Pool] = {}
        bodies: dict[Subscription | None, bytes] = {}
        size = 0
        for each in wanted:
            bodies[each] = frames.snapshot_body(self.chosen(each, pools), now=now)
            size += len(bodies[each])
            if size >= _SNAPSHOT_BYTES:
                break
        return bodies

    def chosen(self, subscription: Subscription, pools: dict[str, Pool]) -> dict[str, list[Item]]:
        """The items that a subscription shows now; the feed's lock is held."""
        found = {}
        for name, layer in self._feed.view.chosen(subscription.layers).items():
            if name not in pools:
                pools[name] = Pool(list(layer.items.values()))
            found[name] = subscription.choose(layer.layer, pools[name])
        return found

    def _update(self, subscription: Subscription, pools: Mapping[str, tuple[Pool, Pool]], now: Instant) -> Frame | None:
        changed: dict[str, list[Item]] = {}
        gone: dict[str, list[str]] = {}
        for name in subscription.layers:
            if name in pools:
                shown, lost = subscription.changed(self._feed.view[name].layer, *pools[name])
                if shown:
                    changed[name] = shown
                if lost:
                    gone[name] = lost
        return frames.update(changed, gone, now=now) if changed or gone else None


def _pools(pairs: list[Change]) -> tuple[Pool, Pool]:
    return Pool([old for old, _ in pairs]), Pool([new for _, new in pairs])
