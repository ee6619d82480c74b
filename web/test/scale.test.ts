import {describe, expect, it} from "vitest";
import {along, mix, parseColour} from "../src/colour";
import type {Scale} from "../src/contract";
import {colourings, Colours} from "../src/scale";
import {layer} from "./layers";

function coloured(scale: Scale, value: unknown, theme: "light" | "dark" = "light"): number[] {
  const out = new Uint8ClampedArray(4);
  new Colours({value: {field: "n", label: "things"}, scale}, theme).write(value, out, 0);
  return [...out];
}

describe("a sequential scale", () => {
  const scale: Scale = {kind: "sequential", domain: [0, 10], colours: ["#000000", "#ffffff"]};

  it("goes from the first colour to the last, and not beyond", () => {
    expect(coloured(scale, 0).slice(0, 3)).toEqual([0, 0, 0]);
    expect(coloured(scale, 10).slice(0, 3)).toEqual([255, 255, 255]);
    expect(coloured(scale, 99)).toEqual(coloured(scale, 10));
    expect(coloured(scale, -5)).toEqual(coloured(scale, 0));
  });

  it("lets little be fainter than much", () => {
    expect(coloured(scale, 0)[3]).toBeLessThan(coloured(scale, 10)[3]!);
  });

  it("says at its ends what they stand for", () => {
    expect(new Colours({value: null, scale}, "light").gradient.marks).toEqual(["0", "5", "10+"]);
    const delays = {value: {field: "p50", label: "delay", unit: "min"}, scale: {kind: "diverging" as const, domain: [-3, 0, 8]}};
    expect(new Colours(delays, "light").gradient.marks).toEqual(["−3", "0", "8+ min"]);
    expect(new Colours({value: null, scale: {...scale, domain: [1, 40]}}, "light").gradient.marks).toEqual(["1", "21", "40+"]);
  });

  it("has colours of its own where none are described, others in the dark", () => {
    const own: Scale = {kind: "sequential", domain: [0, 10]};
    expect(coloured(own, 5, "light")).not.toEqual(coloured(own, 5, "dark"));
  });
});

describe("a diverging scale", () => {
  const scale: Scale = {kind: "diverging", domain: [-2, 0, 8], colours: ["#0000ff", "#ffffff", "#ff0000"]};

  it("has its middle colour at its middle value, wherever that is in the domain", () => {
    expect(coloured(scale, 0).slice(0, 3).every((part) => part > 250)).toBe(true);
    expect(coloured(scale, -2).slice(0, 3)).toEqual([0, 0, 255]);
    expect(coloured(scale, 8).slice(0, 3)).toEqual([255, 0, 0]);
    expect(new Colours({value: null, scale}, "light").amount(4)).toBe(0.75);
  });
});

describe("a categorical scale", () => {
  const scale: Scale = {kind: "categorical", categories: {bus: "#0072b2"}};

  it("uses the described colours, and gives each further value one of its own", () => {
    const colours = new Colours({value: {field: "mode", label: "mode"}, scale}, "light");
    expect(colours.css("bus")).toBe("rgb(0 114 178)");
    expect(colours.css("sled")).not.toBe(colours.css("bus"));
    expect(colours.css("sled")).not.toBe(colours.css("kite"));
    expect(colours.entries.map(({label}) => label)).toEqual(["bus", "sled", "kite"]);
  });

  it("lightens a dark colour at night", () => {
    const light = coloured(scale, "bus", "light");
    const dark = coloured(scale, "bus", "dark");
    expect(dark[1]).toBeGreaterThan(light[1]!);
  });
});

it.each([null, undefined, "many", NaN])("shows %s as unknown, whatever the scale", (value) => {
  const [red, green, blue] = coloured({kind: "sequential", domain: [0, 1], colours: ["#f00", "#f00"]}, value);
  expect(Math.max(red!, green!, blue!) - Math.min(red!, green!, blue!)).toBeLessThan(20);
});

it("takes the value from the item, or from the field of an alternative", () => {
  const described = layer({alternatives: [{value: {field: "delay", label: "delay"}, scale: {kind: "diverging"}}]});
  const item = {k: "1", t: 0, x: 0, v: 7, f: {n: 7, delay: -30}};
  const [main, other] = colourings(described).map((colouring) => new Colours(colouring, "light"));
  expect(main!.valueOf(item, true)).toBe(7);
  expect(other!.valueOf(item, false)).toBe(-30);
});

it("stands a domain that makes no sense", () => {
  expect(coloured({kind: "sequential", domain: [5, 5]}, 5)).toHaveLength(4);
  expect(coloured({kind: "sequential", domain: [NaN]}, 0.5)).toHaveLength(4);
});

it("reads and mixes colours", () => {
  expect(parseColour("#1b7")).toEqual([17, 187, 119]);
  expect(parseColour("red")).toEqual([136, 136, 136]);
  expect(mix([0, 0, 0], [255, 255, 255], 0)).toEqual([0, 0, 0]);
  expect(along([[0, 0, 0], [255, 0, 0], [255, 255, 255]], 0.5)).toEqual([255, 0, 0]);
  expect(along([[1, 2, 3]], 0.7)).toEqual([1, 2, 3]);
});
