import {cellToBoundary, cellToLatLng, isPentagon, isValidCell} from "h3-js";
import type {Item} from "../contract";
import type {Colours} from "../scale";
import {Instances} from "./instances";

const NAMES = ["getPosition", "getCorners01", "getCorners23", "getCorners45"] as const;

interface Shape {
  lon: number;
  lat: number;
  /** x, y of six corners. */
  corners: Float32Array;
}

const shapes = new Map<string, Shape | null>();

/** Centre and corners of a cell; null when it is none. */
export function shapeOf(cell: string): Shape | null {
  let shape = shapes.get(cell);
  if (shape !== undefined) return shape;
  shape = null;
  if (isValidCell(cell)) {
    const [lat, lon] = cellToLatLng(cell);
    // Where a cell crosses an edge of the icosahedron it has more corners than six: every such is left out.
    const all = cellToBoundary(cell);
    const picked = all.length === 6 ? all : Array.from({length: 6}, (_, i) => all[Math.floor((i * all.length) / 6)]!);
    if (isPentagon(cell)) picked[5] = picked[4]!;
    shape = {lon, lat, corners: Float32Array.from(picked.flatMap(([y, x]) => [wrap(x - lon), y - lat]))};
  }
  // Thousands are shown, tens of thousands exist where people are: keep them, but not for ever.
  if (shapes.size > 50_000) shapes.clear();
  shapes.set(cell, shape);
  return shape;
}

/** Hexagons. */
export class Cells extends Instances<(typeof NAMES)[number]> {
  constructor(colours: Colours, mainColours: boolean) {
    super(NAMES, colours, mainColours);
  }

  protected override drawable(item: Item): boolean {
    return item.c !== undefined && shapeOf(item.c) !== null;
  }

  protected override place(row: number, item: Item, before: Item | null): void {
    if (before?.c === item.c) return;
    const {lon, lat, corners} = shapeOf(item.c!)!;
    this.columns.get("getPosition").set([lon, lat, 0], row * 3);
    this.columns.get("getCorners01").set(corners.subarray(0, 4), row * 4);
    this.columns.get("getCorners23").set(corners.subarray(4, 8), row * 4);
    this.columns.get("getCorners45").set(corners.subarray(8, 12), row * 4);
    this.columns.touchAll();
  }
}

function wrap(degrees: number): number {
  return degrees > 180 ? degrees - 360 : degrees < -180 ? degrees + 360 : degrees;
}
