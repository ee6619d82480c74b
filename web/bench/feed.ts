import {cellToLatLng, gridDisk, latLngToCell} from "h3-js";
import type {Item, Layer, Message, Status} from "../src/contract";

const LAYERS: Layer[] = [
  {
    name: "cells",
    title: "Cells",
    topic: "analytics.cells",
    key: ["cell"],
    geometry: {kind: "cell", cell: "cell"},
    show: "cells",
    value: {field: "n", label: "things"},
    scale: {kind: "sequential", domain: [0, 20]},
    figures: [{field: "n", label: "things"}],
    filters: [],
    expiry: 10_000,
    on: true,
  },
  {
    name: "movers",
    title: "Movers",
    topic: "analytics.movers",
    key: ["number"],
    geometry: {kind: "point", lat: "lat", lon: "lon", heading: "heading"},
    show: "moving",
    value: {field: "kind", label: "kind"},
    scale: {kind: "categorical", categories: {bus: "#0072b2", tram: "#009e73", train: "#cc79a7"}},
    figures: [{field: "speed", label: "speed", unit: "m/s"}],
    filters: ["kind"],
    expiry: 10_000,
    on: true,
  },
];
const KINDS = ["bus", "bus", "bus", "tram", "train"];
const CENTRE = {lon: 24.94, lat: 60.2};

/** So many hexagons, new every five seconds, and so many things that report where they are every second. */
export class Feed {
  readonly #cells: string[];
  readonly #movers: {number: number; lon: number; lat: number; heading: number}[];
  #tick = 0;

  constructor(cells: number, movers: number) {
    const centre = latLngToCell(CENTRE.lat, CENTRE.lon, 9);
    this.#cells = gridDisk(centre, Math.ceil(Math.sqrt(cells / 3))).slice(0, cells);
    this.#movers = Array.from({length: movers}, (_, number) => {
      const [lat, lon] = cellToLatLng(this.#cells[(number * 7) % this.#cells.length]!);
      return {number, lon, lat, heading: (number * 37) % 360};
    });
  }

  hello(): Message {
    return {type: "hello", protocol: 1, now: Date.now(), layers: LAYERS};
  }

  snapshot(id: number): Message {
    return {type: "snapshot", id, now: Date.now(), layers: {cells: this.#cells.map((cell, i) => this.#cell(cell, i)), movers: this.#movers.map((mover) => this.#move(mover))}};
  }

  /** What a tenth of a second brings: a tenth of the movers, and in each fifth second a tenth of all hexagons, ten times. */
  next(): Message {
    const tick = this.#tick++;
    const movers = this.#movers.filter(({number}) => number % 10 === tick % 10).map((mover) => this.#move(mover));
    const cells = tick % 50 < 10 ? this.#cells.filter((_, i) => i % 10 === tick % 10).map((cell, i) => this.#cell(cell, i)) : [];
    return {type: "update", now: Date.now(), changed: {movers, cells}};
  }

  status(): Status {
    const now = Date.now();
    const latency = {p50: 800, p90: 1400, p99: 2300};
    return {type: "status", now, event_time: now - 500, watermark: now - 1500, lag: 1500, behind: 0, in_rate: 2000, result_rate: 3000, latency, late: 0, dead: 0, bad: 0, clients: 1};
  }

  #cell(cell: string, i: number): Item {
    const n = (i * 13 + this.#tick * 7) % 21;
    const early = (i + this.#tick) % 3 === 0;
    return {k: cell, t: Date.now(), x: Date.now() + 10_000, c: cell, v: n, timing: early ? "EARLY" : "ON_TIME", f: {cell, n}};
  }

  #move(mover: {number: number; lon: number; lat: number; heading: number}): Item {
    mover.heading = (mover.heading + ((mover.number * 7 + this.#tick) % 11) - 5 + 360) % 360;
    mover.lon += Math.sin((mover.heading * Math.PI) / 180) * 2e-4;
    mover.lat += Math.cos((mover.heading * Math.PI) / 180) * 1e-4;
    const {number, lon, lat, heading} = mover;
    const kind = KINDS[number % KINDS.length]!;
    return {k: String(number), t: Date.now(), x: Date.now() + 10_000, p: [lon, lat], h: heading, v: kind, f: {number, lon, lat, heading, kind, speed: 11}};
  }
}
