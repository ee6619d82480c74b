import {expect, it} from "vitest";
import {formatHash, parseHash, type UrlState} from "../src/url";

const FULL: UrlState = {
  lon: 24.94123,
  lat: 60.17456,
  zoom: 12.25,
  on: ["vehicles", "delay-distribution"],
  filters: {mode: ["bus", "tram"], route: ["55", "1001 H"]},
  selected: {layer: "vehicles", key: "18/1069"},
  theme: "dark",
  at: 1_700_000_000_000,
  tab: "alerts",
  trails: true,
  colourBy: {vehicles: "delay"},
};

it("comes back from the address as it went in", () => {
  expect(parseHash(formatHash(FULL))).toEqual(FULL);
});

it("is readable", () => {
  expect(formatHash(FULL)).toBe(
    "#c=24.94123,60.17456&z=12.25&on=vehicles,delay-distribution&f.mode=bus,tram&f.route=55,1001+H&by.vehicles=delay&trails=1" +
      "&sel=vehicles:18/1069&theme=dark&t=1700000000000&tab=alerts",
  );
});

it("is empty where nothing was chosen", () => {
  expect(parseHash("")).toEqual({filters: {}, trails: false, colourBy: {}});
});

it("tells all layers off from none chosen", () => {
  expect(parseHash(formatHash({...parseHash(""), on: []})).on).toEqual([]);
  expect(parseHash("#z=10").on).toBeUndefined();
});

it("keeps a key with any signs in it", () => {
  const selected = {layer: "a", key: "x:y/ä&=#?,+%"};
  expect(parseHash(formatHash({...parseHash(""), selected})).selected).toEqual(selected);
});

it("tells which result of a key is meant, where it is one of its own", () => {
  const selected = {layer: "stops", key: "1/7", t: 1_700_000_000_123};
  const hash = formatHash({...parseHash(""), selected});
  expect(hash).toBe("#sel=stops:1/7&of=1700000000123");
  expect(parseHash(hash).selected).toEqual(selected);
  expect(parseHash("#sel=stops:1/7&of=now").selected).toEqual({layer: "stops", key: "1/7"});
  expect(parseHash("#of=5").selected).toBeUndefined();
});

it("keeps a filter's value with any signs in it, and reads addresses of old", () => {
  const filters = {stop: ["Espoo, Leppävaara", "a\\", "&=#?+%:"]};
  expect(parseHash(formatHash({...parseHash(""), filters})).filters).toEqual(filters);
  expect(parseHash("#f.mode=bus,tram&f.route=55").filters).toEqual({mode: ["bus", "tram"], route: ["55"]});
});

it.each(["#c=abc", "#c=200,10", "#c=24", "#z=99", "#z=", "#t=yesterday", "#t=-5", "#theme=pink", "#tab=nothing", "#sel=:x", "#f.=&f.mode="])(
  "leaves out what makes no sense: %s",
  (hash) => {
    const {filters, ...state} = parseHash(hash);
    expect(state).toEqual({trails: false, colourBy: {}});
    expect(Object.values(filters).flat()).toEqual([]);
  },
);
