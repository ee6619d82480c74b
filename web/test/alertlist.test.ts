// @vitest-environment happy-dom
import {afterEach, beforeEach, expect, it, vi} from "vitest";
import type {Api} from "../src/api";
import {App} from "../src/app";
import type {Alert} from "../src/contract";
import type {LiveMap} from "../src/map/map";
import {Signal} from "../src/signal";
import {State} from "../src/state";
import {Stats} from "../src/stats";
import {Themes} from "../src/theme";
import {AlertList} from "../src/ui/alertlist";
import {parseHash} from "../src/url";
import {layer} from "./layers";

const stops = layer({name: "stops", show: "alerts", key: ["vehicle"], filters: ["mode"]});
const other = layer({name: "other", show: "alerts", key: ["vehicle"], filters: []});

const THEN = 1_500_000_000_000;
const MINUTE = 60_000;

/** What the server knows of, whatever was sent. */
let happened: Alert[];
let app: App;
let list: AlertList;

function alert(name: string, k: string, t: number, mode = "bus"): Alert {
  return {layer: name, k, t, x: t + 30_000, v: null, f: {vehicle: k, mode}};
}

function shown(): string[] {
  return list.shown().map(({k}) => k);
}

async function settle(): Promise<void> {
  for (let i = 0; i < 10; i++) await Promise.resolve();
}

beforeEach(async () => {
  vi.useFakeTimers();
  happened = [alert("stops", "bus", THEN), alert("stops", "tram", THEN + MINUTE, "tram"), alert("other", "other", THEN + 2 * MINUTE, "tram")];
  const ignored = (): void => {};
  const map = {apply: ignored, describe: ignored, show: ignored, select: ignored, showTrails: ignored, recolour: ignored, useTheme: ignored, region: null, camera: new Signal({})};
  const api = {alerts: () => Promise.resolve({alerts: happened})};
  const state = new State(parseHash(""), new Themes("light"), false);
  app = new App(state, api as unknown as Api, map as unknown as LiveMap, () => ({subscribe: () => true, close: ignored}), parseHash(""), new Stats());
  list = new AlertList(app.alerts, state, app.travel, app.eventClock, ignored);
  app.onAlerts = () => list.render();
  app.receive({type: "hello", protocol: 1, now: Date.now(), layers: [stops, other]});
  await settle();
});

afterEach(() => vi.useRealTimers());

it("has the alerts of layers that are on, newest first", () => {
  expect(shown()).toEqual(["other", "tram", "bus"]);
  app.state.toggleLayer("stops");
  expect(shown()).toEqual(["other"]);
});

it("respects the filters, where a layer can be filtered by them", () => {
  app.state.filters.set({mode: ["bus"]});
  expect(shown()).toEqual(["other", "bus"]);
  app.state.filters.set({});
  expect(shown()).toEqual(["other", "tram", "bus"]);
});

it("has also those that happened while a filter kept them away, once it is lifted", async () => {
  app.state.filters.set({mode: ["bus"]});
  await settle();
  happened = [...happened, alert("stops", "metro", THEN + 3 * MINUTE, "metro")];
  expect(shown()).toEqual(["other", "bus"]);
  app.state.filters.set({});
  await settle();
  expect(shown()).toEqual(["metro", "other", "tram", "bus"]);
});

it("forgets by event time, and not before it is known: that of a replay may be years from the clock", async () => {
  app.forgetAlerts();
  expect(shown()).toHaveLength(3);
  app.eventClock.heard({now: app.clock.now(), event_time: THEN + 60 * MINUTE});
  app.forgetAlerts();
  expect(shown()).toEqual(["other", "tram"]);
  app.state.filters.set({mode: ["bus", "tram"]});
  await settle();
  expect(shown()).toEqual(["other", "tram"]);
});

it("shows what changed, and why there is nothing", () => {
  const told = (): string => {
    vi.advanceTimersByTime(500);
    return list.root.querySelector<HTMLElement>(".empty:not([hidden])")?.textContent ?? "";
  };
  app.state.toggleLayer("other");
  app.state.filters.set({mode: ["bus"]});
  expect(told()).toBe("");
  expect([...list.root.querySelectorAll<HTMLElement>("li")].map(({dataset}) => dataset["key"])).toEqual(["bus"]);
  app.state.filters.set({mode: ["ferry"]});
  expect(told()).toBe("No alerts in the last hour that pass the filters.");
  app.state.toggleLayer("stops");
  expect(told()).toBe("No layer with alerts is on.");
});
