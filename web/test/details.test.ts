// @vitest-environment happy-dom
import {beforeEach, describe, expect, it} from "vitest";
import {AlertLog} from "../src/alerts";
import type {App} from "../src/app";
import {Clock} from "../src/clock";
import type {History, HistoryPoint, Item} from "../src/contract";
import {EventClock} from "../src/eventclock";
import {lastOf, SPAN, spanOf, type Told} from "../src/span";
import {State} from "../src/state";
import {Store} from "../src/store";
import {Themes} from "../src/theme";
import {TimeTravel} from "../src/timetravel";
import {Details} from "../src/ui/details";
import {parseHash} from "../src/url";
import {layer} from "./layers";
import {TestTimers} from "./timers";

const NOW = 1_700_000_000_000;
/** Events of a recording, years before. */
const THEN = 1_500_000_000_000;

const NONE: Told = {own: undefined, shown: undefined, clock: null, past: false};

type Span = {since?: number; until?: number};

let asked: Span[];
let kept: HistoryPoint[];
let local: number;
let app: Pick<App, "state" | "store" | "api" | "clock" | "eventClock" | "travel" | "alerts">;
let details: Details;
let timers: TestTimers;

function item(t: number, v = 1): Item {
  return {k: "a", t, x: NOW + 1000, v, f: {n: v}};
}

/** Lets what was promised come. */
async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await Promise.resolve();
}

function text(test: string): string {
  return (test === "details" ? details.root : details.root.querySelector(`[data-test=${test}]`))?.textContent ?? "";
}

beforeEach(() => {
  [asked, kept, local] = [[], [], NOW];
  timers = new TestTimers();
  const clock = new Clock(() => local);
  const state = new State(parseHash(""), new Themes("light"), false);
  const travel = new TimeTravel({timers, now: () => clock.now(), fetch: (at) => Promise.resolve({now: local, at, layers: {}}), show: () => {}});
  const eventClock = new EventClock({now: () => clock.now(), past: () => travel.past?.at ?? null, speed: () => state.speed.value});
  travel.moment.subscribe(() => eventClock.tick());
  const history = (name: string, key: string, {since = -Infinity, until = Infinity}: Span): Promise<History> => {
    asked.push({...(since > -Infinity && {since}), ...(until < Infinity && {until})});
    return Promise.resolve({layer: name, key, points: kept.filter(({t}) => t >= since && t <= until)});
  };
  app = {state, store: new Store(), api: {history} as unknown as App["api"], clock, eventClock, travel, alerts: new AlertLog()};
  details = new Details(app, {flyTo: () => {}, path: () => {}});
  state.describe([layer()]);
});

describe("the results that are asked for", () => {
  it("are those before the one that is shown, and all that came since", () => {
    expect(spanOf({...NONE, shown: THEN, clock: THEN + 5000})).toEqual({since: THEN - SPAN});
    expect(spanOf({...NONE, clock: THEN})).toEqual({since: THEN - SPAN});
  });

  it("end with the moment that is shown, and with a provisional result that is ahead of it", () => {
    expect(spanOf({...NONE, shown: THEN, clock: THEN + 5000, past: true})).toEqual({since: THEN - SPAN, until: THEN + 5000});
    expect(spanOf({...NONE, shown: THEN + 9000, clock: THEN, past: true})).toEqual({since: THEN + 9000 - SPAN, until: THEN + 9000});
  });

  it("are all there are before anything is known, of which the last are shown", () => {
    expect(spanOf(NONE)).toEqual({});
    const points = [0, 1000, SPAN, SPAN + 1000].map((t) => ({t, v: null, f: {}}));
    expect(lastOf(points).map(({t}) => t)).toEqual([1000, SPAN, SPAN + 1000]);
    expect(lastOf([])).toEqual([]);
  });
});

describe("the details of a replay", () => {
  beforeEach(() => {
    kept = [THEN - 2 * SPAN, THEN - 60_000, THEN - 30_000, THEN].map((t, v) => ({t, v, f: {n: v}}));
    app.eventClock.heard({now: NOW, event_time: THEN + 2000});
  });

  it("are asked for by event time", async () => {
    app.store.update({counts: [item(THEN, 3)]});
    app.state.selected.set({layer: "counts", key: "a"});
    await settle();
    expect(asked).toEqual([{since: THEN - SPAN}]);
    expect(details.root.querySelector("[data-test=plot]")!.getAttribute("aria-label")).toMatch(/^things, 1 to 3/);
  });

  it("are found when the thing itself is gone", async () => {
    app.state.selected.set({layer: "counts", key: "a"});
    await settle();
    expect(asked).toEqual([{since: THEN + 2000 - SPAN}]);
    expect(text("details-value")).toBe("3");
  });

  it("of an earlier moment end with its event time", async () => {
    app.state.selected.set({layer: "counts", key: "a"});
    local += 40_000;
    app.eventClock.heard({now: local, event_time: THEN + 42_000});
    app.travel.seek(NOW);
    await timers.pass(200);
    await settle();
    expect(asked.at(-1)).toEqual({since: THEN + 2000 - SPAN, until: THEN + 2000});
  });

  it("tell how long ago it came, however fast the events come", () => {
    app.state.speed.set(10);
    app.clock.heard(NOW);
    app.store.update({counts: [{...item(THEN), x: NOW + 1000}]});
    app.state.selected.set({layer: "counts", key: "a"});
    expect(details.root.querySelector(".facts")!.textContent).toContain("updatedjust now");
  });
});

describe("the details of an alert", () => {
  const HOUR_AGO = THEN - 50 * 60_000;
  const alert = (t: number, v: number): Item => ({...item(t, v), p: [24.9, 60.2]});

  beforeEach(() => {
    kept = [HOUR_AGO - 60_000, HOUR_AGO, THEN].map((t, v) => ({t, v, f: {n: v}}));
    app.eventClock.heard({now: NOW, event_time: THEN});
    for (const {t, v} of kept) app.alerts.add("counts", alert(t, Number(v)));
  });

  it("are its own, however long ago it was, and with what led to it", async () => {
    app.state.selected.set({layer: "counts", key: "a", t: HOUR_AGO});
    expect(text("details-value")).toBe("1");
    await settle();
    expect(asked).toEqual([{since: HOUR_AGO - SPAN, until: HOUR_AGO}]);
    expect(details.root.querySelector("[data-test=plot]")!.getAttribute("aria-label")).toMatch(/^things, 0 to 1/);
    expect(details.root.querySelector<HTMLElement>("[data-test=go-there]")!.hidden).toBe(false);
  });

  it("are not those of a later one of the same vehicle, on the map or to come", () => {
    app.store.update({counts: [alert(THEN, 2)]});
    app.state.selected.set({layer: "counts", key: "a", t: HOUR_AGO});
    expect(text("details-value")).toBe("1");
    expect(text("gone")).toContain("No longer on the map");
    app.store.update({counts: [alert(THEN + 1000, 9)]});
    expect(text("details-value")).toBe("1");
    app.state.selected.set({layer: "counts", key: "a", t: THEN});
    expect(text("details-value")).toBe("2");
  });

  it("tell when it is replaced, and when it is retracted", () => {
    app.store.update({counts: [alert(THEN, 2)]});
    app.state.selected.set({layer: "counts", key: "a", t: THEN});
    expect(text("gone")).toBe("");
    app.store.update({}, {counts: ["a"]}, NOW);
    expect(text("gone")).toContain("Retracted");
    app.store.update({counts: [alert(THEN + 1000, 9)]});
    app.store.update({}, {counts: ["a"]}, NOW + 5000);
    expect(text("gone")).toContain("Retracted");
    expect(text("details-value")).toBe("2");
  });

  it("come from its history where the list does not have it", async () => {
    app.alerts.trim(Infinity);
    app.state.selected.set({layer: "counts", key: "a", t: HOUR_AGO});
    await settle();
    expect(text("details-value")).toBe("1");
    app.state.selected.set({layer: "counts", key: "a", t: HOUR_AGO + 5});
    await settle();
    expect(text("details")).toContain("Nothing is known of a");
  });
});

it("asks again once event time is known", async () => {
  kept = [{t: THEN, v: 3, f: {n: 3}}];
  app.state.selected.set({layer: "counts", key: "a"});
  await settle();
  expect(asked).toEqual([{}]);
  expect(text("details-value")).toBe("3");
  app.eventClock.heard({now: NOW, event_time: THEN});
  app.eventClock.heard({now: NOW + 1000, event_time: THEN + 1000});
  await settle();
  expect(asked).toEqual([{}, {since: THEN - SPAN}]);
});
