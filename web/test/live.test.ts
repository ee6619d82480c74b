import {beforeEach, describe, expect, it} from "vitest";
import {Backoff} from "../src/backoff";
import type {Message, Subscription} from "../src/contract";
import {Live} from "../src/live";
import type {TransportHandlers, TransportKind} from "../src/transport";
import {TestTimers} from "./timers";

interface Opened {
  kind: TransportKind;
  subscription: Subscription;
  handlers: TransportHandlers;
  asked: {id: number; subscription: Subscription}[];
  closed: boolean;
}

const HELLO = JSON.stringify({type: "hello", protocol: 1, now: 0, layers: []});
const WANTED: Subscription = {layers: ["a"], region: null, filters: {}};

let timers: TestTimers;
let opened: Opened[];
let heard: Message[];
let live: Live;

beforeEach(() => {
  timers = new TestTimers();
  opened = [];
  heard = [];
  live = new Live({
    timers,
    backoff: new Backoff({first: 500, most: 4000, random: () => 1}),
    onMessage: (message) => heard.push(message),
    open: (kind, subscription, handlers) => {
      const one: Opened = {kind, subscription, handlers, asked: [], closed: false};
      opened.push(one);
      return {
        subscribe: (id, wanted) => {
          if (kind === "events") return false;
          one.asked.push({id, subscription: wanted});
          return true;
        },
        close: () => (one.closed = true),
      };
    },
  });
});

const last = (): Opened => opened.at(-1)!;

it("is open once the server has greeted", () => {
  live.connect();
  expect(live.link.value).toMatchObject({kind: "connecting", transport: "websocket"});
  last().handlers.message(HELLO);
  expect(live.link.value).toEqual({kind: "open", transport: "websocket"});
});

it("waits twice as long after each failure, up to a limit, and says so", async () => {
  const waits: number[] = [];
  live.link.subscribe((link) => link.kind === "waiting" && waits.push(link.wait));
  live.connect();
  for (let i = 0; i < 6; i++) {
    last().handlers.closed();
    await timers.pass(waits.at(-1)!);
  }
  expect(waits).toEqual([500, 1000, 2000, 4000, 4000, 4000]);
  expect(opened).toHaveLength(7);
});

it("begins with short waits again after it was connected", async () => {
  live.connect();
  for (let i = 0; i < 3; i++) {
    last().handlers.closed();
    await timers.pass(4000);
  }
  last().handlers.message(HELLO);
  last().handlers.closed();
  expect(live.link.value).toMatchObject({kind: "waiting", wait: 500, failures: 1});
});

it("asks again for what it showed when it is back", async () => {
  live.connect();
  last().handlers.message(HELLO);
  live.subscribe(WANTED);
  last().handlers.closed();
  await timers.pass(500);
  last().handlers.message(HELLO);
  expect(last().asked.at(-1)?.subscription).toEqual(WANTED);
});

it("does not wait when the reader asks, or the network is back", () => {
  live.connect();
  last().handlers.closed();
  live.retryNow();
  expect(opened).toHaveLength(2);
  live.retryNow();
  expect(opened).toHaveLength(2);
});

it("takes a long silence for a lost connection", async () => {
  live.connect();
  last().handlers.message(HELLO);
  await timers.pass(7000);
  last().handlers.message(JSON.stringify({type: "status", now: 1}));
  await timers.pass(7000);
  expect(live.link.value.kind).toBe("open");
  await timers.pass(1000);
  expect(live.link.value.kind).toBe("waiting");
  expect(opened[0]!.closed).toBe(true);
});

describe("where WebSockets are blocked", () => {
  async function blocked(): Promise<void> {
    live.connect();
    while (last().kind === "websocket") {
      last().handlers.closed();
      await timers.pass(4000);
    }
  }

  it("falls back to events after two attempts", async () => {
    live.subscribe(WANTED);
    await blocked();
    expect(opened.map(({kind}) => kind)).toEqual(["websocket", "websocket", "events"]);
    expect(last().subscription).toEqual(WANTED);
    last().handlers.message(HELLO);
    expect(live.link.value).toEqual({kind: "open", transport: "events"});
  });

  it("opens events anew for another subscription", async () => {
    await blocked();
    last().handlers.message(HELLO);
    live.subscribe(WANTED);
    expect(opened).toHaveLength(4);
    expect(opened[2]!.closed).toBe(true);
    expect(last().subscription).toEqual(WANTED);
  });

  it("stays with events when they break, having worked", async () => {
    await blocked();
    last().handlers.message(HELLO);
    last().handlers.closed();
    await timers.pass(4000);
    expect(last().kind).toBe("events");
  });
});

it("lets a snapshot for an earlier subscription pass by", () => {
  live.connect();
  last().handlers.message(HELLO);
  live.subscribe(WANTED);
  live.subscribe({...WANTED, layers: ["b"]});
  const [first, second] = last().asked.map(({id}) => id);
  last().handlers.message(JSON.stringify({type: "snapshot", id: first, now: 1, layers: {a: []}}));
  last().handlers.message(JSON.stringify({type: "snapshot", id: second, now: 1, layers: {b: []}}));
  last().handlers.message(JSON.stringify({type: "snapshot", id: null, now: 2, layers: {b: []}}));
  expect(heard.filter(({type}) => type === "snapshot").map((message) => (message as {id: number | null}).id)).toEqual([second, null]);
});

it("stands what is no message", () => {
  live.connect();
  last().handlers.message("<html>");
  expect(heard).toEqual([]);
});

it("differs for everyone, so that not all come back at once", () => {
  const waits = [0, 0.5, 1].map((random) => new Backoff({first: 1000, random: () => random}).next());
  expect(waits).toEqual([500, 750, 1000]);
});
