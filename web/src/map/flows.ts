import type {Item} from "../contract";
import type {Colours} from "../scale";
import {shapeOf} from "./cells";
import {Instances} from "./instances";

const SPECS = {
  getPosition: {type: "float64", size: 3},
  getTarget: {type: "float64", size: 3},
  /** How wide, 0…1. */
  getWeight: {type: "float32", size: 1},
} as const;

/** Arrows from cell to cell, wider the more there is of it. */
export class Flows extends Instances<keyof typeof SPECS> {
  constructor(colours: Colours, mainColours: boolean) {
    super(SPECS, colours, mainColours);
  }

  protected override drawable(item: Item): boolean {
    return item.e !== undefined && shapeOf(item.e[0]) !== null && shapeOf(item.e[1]) !== null;
  }

  protected override place(row: number, item: Item): void {
    const from = shapeOf(item.e![0])!;
    const to = shapeOf(item.e![1])!;
    this.columns.get("getPosition").set([from.lon, from.lat, 0], row * 3);
    this.columns.get("getTarget").set([to.lon, to.lat, 0], row * 3);
    this.columns.get("getWeight")[row] = typeof item.v === "number" && this.colours.kind !== "categorical" ? this.colours.amount(item.v) : 0.5;
    for (const name of ["getPosition", "getTarget", "getWeight"] as const) this.columns.touch(name);
  }
}
