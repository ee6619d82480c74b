import {describe, expect, it} from "vitest";
import {plottable, plottedFirst} from "../src/ui/figures";
import {layer} from "./layers";

const VEHICLES = layer({
  key: ["operator", "vehicle"],
  value: {field: "mode", label: "mode"},
  figures: [
    {field: "mode", label: "mode"},
    {field: "direction", label: "direction"},
    {field: "vehicle", label: "vehicle"},
    {field: "heading", label: "heading", unit: "°"},
    {field: "speed", label: "speed", unit: "m/s"},
    {field: "delay", label: "ahead of timetable", unit: "s"},
    {field: "seen", label: "seen", unit: "time"},
  ],
});
const f = {mode: "bus", direction: 1, vehicle: 7, heading: 90, speed: 8.5, delay: -20, seen: 1_700_000_000_000};
const names = (fields: object): string[] => plottable(VEHICLES, [{f: {mode: "bus"}}, {f: {...fields}}]).map(({field}) => field);

describe("what can be plotted", () => {
  it("is every number but names and times", () => expect(names(f)).toEqual(["direction", "heading", "speed", "delay"]));

  it("is only what was ever told", () => expect(names({delay: 3, vehicle: 7})).toEqual(["delay"]));

  it("has the layer's value first, and once", () => {
    const counts = layer({figures: [{field: "all", label: "all"}, {field: "n", label: "things"}]});
    expect(plottable(counts, [{f: {all: 9, n: 3}}]).map(({field}) => field)).toEqual(["n", "all"]);
  });
});

describe("what is plotted first", () => {
  const first = (fields: object, colouredBy: string | null = "mode"): string | undefined =>
    plottedFirst(VEHICLES, plottable(VEHICLES, [{f: {...fields}}]), colouredBy)?.field;

  it("is something measured where the value is no number", () => expect(first(f)).toBe("speed"));

  it("is what the layer is coloured by", () => expect(first(f, "delay")).toBe("delay"));

  it("is the layer's value where that is a number", () => {
    expect(plottedFirst(layer(), plottable(layer(), [{f: {n: 1}}]), "n")?.field).toBe("n");
  });

  it("is a direction only where there is nothing else", () => {
    expect(first({direction: 1, delay: 0})).toBe("delay");
    expect(first({direction: 1})).toBe("direction");
    expect(first({mode: "bus"})).toBeUndefined();
  });
});
