import type {Item} from "../contract";
import type {Colours} from "../scale";
import {shapeOf} from "./cells";
import {Instances} from "./instances";

const NAMES = ["getPosition", "getTarget", "getWeight"] as const;

/** Arrows from cell to cell, wider the more there is of it. */
export class Flows extends Instances<(typeof NAMES)[number]> {
  constructor(colours: Colours, mainColours: boolean) {
    super(NAMES, colours, mainColours);
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
    for (const name of NAMES) this.columns.touch(name);
  }
}
