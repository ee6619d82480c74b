import {expect, it} from "vitest";
import type {Item} from "../src/contract";
import {isEmpty, joinValues, Known, only, passes, splitValues, toggled} from "../src/filters";
import {layer} from "./layers";

const vehicles = layer({filters: ["mode", "operator"]});

function item(f: Item["f"]): Item {
  return {k: "1", t: 0, x: 1, v: null, f};
}

it("passes what has one of the allowed values in every field", () => {
  const filters = {mode: ["bus", "tram"], operator: ["18"]};
  expect(passes(item({mode: "bus", operator: 18}), vehicles, filters)).toBe(true);
  expect(passes(item({mode: "metro", operator: 18}), vehicles, filters)).toBe(false);
  expect(passes(item({mode: "bus", operator: 6}), vehicles, filters)).toBe(false);
});

it("does not pass what lacks the field", () => {
  expect(passes(item({}), vehicles, {mode: ["bus"]})).toBe(false);
});

it("leaves layers alone that do not name the field", () => {
  expect(passes(item({mode: "metro"}), layer({filters: []}), {mode: ["bus"]})).toBe(true);
});

it("passes a pair of which either is allowed, and offers the values of both", () => {
  const pairs = layer({filters: ["operator", "route"], filters_also: {operator: ["other_operator"]}});
  const pair = item({operator: 18, other_operator: 6, route: "550"});
  expect(passes(pair, pairs, {operator: ["18"]})).toBe(true);
  expect(passes(pair, pairs, {operator: ["6", "40"]})).toBe(true);
  expect(passes(pair, pairs, {operator: ["40"]})).toBe(false);
  expect(passes(pair, pairs, {operator: ["6"], route: ["1"]})).toBe(false);
  expect(passes(pair, pairs, {other_operator: ["40"]})).toBe(true);
  const known = new Known();
  known.learn(pairs, [pair]);
  expect(known.of("operator")).toEqual(["6", "18"]);
  expect(known.of("other_operator")).toEqual([]);
});

it("lifts a field's filter with its last value", () => {
  const one = toggled({}, "mode", "bus");
  expect(one).toEqual({mode: ["bus"]});
  expect(toggled(one, "mode", "tram")).toEqual({mode: ["bus", "tram"]});
  expect(toggled(one, "mode", "bus")).toEqual({});
  expect(isEmpty(only({mode: ["bus"]}, "mode", []))).toBe(true);
});

it("says any values in one text, plainly where it can", () => {
  expect(joinValues(["bus", "tram"])).toBe("bus,tram");
  expect(joinValues(["Espoo, Leppävaara", "a\\"])).toBe("Espoo\\, Leppävaara,a\\\\");
  for (const values of [["a,b", "c"], [","], ["\\"], ["\\,", "\\\\", "x\\y"], ["", "a"], ["a\\", ",b"]]) {
    expect(splitValues(joinValues(values))).toEqual(values);
  }
  expect(splitValues("C:\\temp,b")).toEqual(["C:\\temp", "b"]);
});

it("remembers the values that were seen, in the order of people", () => {
  const known = new Known();
  expect(known.learn(vehicles, [item({mode: "bus", operator: 18}), item({mode: "bus", operator: 6})])).toBe(true);
  expect(known.learn(vehicles, [item({mode: "bus", operator: 6})])).toBe(false);
  expect(known.of("operator")).toEqual(["6", "18"]);
  known.learn(vehicles, [item({operator: 12})]);
  expect(known.of("operator")).toEqual(["6", "12", "18"]);
  expect(known.of("route")).toEqual([]);
});
