import type {Item} from "../contract";
import type {Colours} from "../scale";
import {Instances} from "./instances";
import {glideTo, placeAt, progress, turn, type Glide} from "./motion";

const NAMES = ["getPosition", "getTarget", "getGlide"] as const;
export const NO_HEADING = -9999;

/** A piece of way that the item of a row travels, from `start` on. */
export interface Segment {
  key: string;
  row: number;
  from: [number, number];
  to: [number, number];
  start: number;
  /** 0 where it jumps. */
  duration: number;
}

/** Vehicles and other things at a point, which glide to where they are reported next. */
export class Points extends Instances<(typeof NAMES)[number]> {
  /** Called for each piece of way that something is about to travel. */
  onTravel: ((segment: Segment) => void) | null = null;
  /** Without it things jump to where they are. */
  gliding = true;
  /** Milliseconds between the reports of a key, smoothed. */
  #intervals = new Map<string, {at: number; interval: number}>();

  constructor(colours: Colours, mainColours: boolean) {
    super(NAMES, colours, mainColours);
  }

  /** Where a row is seen now. */
  seenAt(row: number, now: number): [lon: number, lat: number] {
    return placeAt(this.#glide(row), now - this.base);
  }

  protected override drawable(item: Item): boolean {
    return item.p !== undefined && item.p.every(Number.isFinite);
  }

  protected override place(row: number, item: Item, before: Item | null, now: number): void {
    const [lon, lat] = item.p!;
    const [x, y] = [row * 3, row * 4];
    const position = this.columns.get("getPosition");
    const target = this.columns.get("getTarget");
    const glides = this.columns.get("getGlide");
    const local = now - this.base;
    const moved = !before?.p || before.p[0] !== lon || before.p[1] !== lat;
    const interval = this.#interval(item.k, now);
    if (!moved && before.h === item.h) return;
    const seenHeading = before ? headingAt(glides, y, local) : NO_HEADING;
    const way = glideTo(before && this.#glide(row), lon, lat, local, interval);
    const glide = this.gliding ? way : {...way, fromLon: lon, fromLat: lat, duration: 0};
    position.set([glide.fromLon, glide.fromLat, 0], x);
    target.set([glide.toLon, glide.toLat, 0], x);
    const heading = item.h ?? NO_HEADING;
    const turns = heading > -1000 && seenHeading > -1000;
    glides.set([turns ? seenHeading : heading, turns ? turn(seenHeading, heading) : 0, glide.start, glide.duration], y);
    for (const name of NAMES) this.columns.touch(name);
    if (glide.duration > 0) this.busy(now + glide.duration);
    if (way.duration > 0) this.onTravel?.({key: item.k, from: [way.fromLon, way.fromLat], to: [lon, lat], row, start: now, duration: glide.duration});
  }

  protected override rebased(by: number): void {
    const glides = this.columns.get("getGlide");
    for (let row = 0; row < this.size; row++) glides[row * 4 + 2]! -= by;
    this.columns.touch("getGlide");
  }

  #glide(row: number): Glide {
    const position = this.columns.get("getPosition");
    const target = this.columns.get("getTarget");
    const glides = this.columns.get("getGlide");
    return {
      fromLon: position[row * 3]!,
      fromLat: position[row * 3 + 1]!,
      toLon: target[row * 3]!,
      toLat: target[row * 3 + 1]!,
      start: glides[row * 4 + 2]!,
      duration: glides[row * 4 + 3]!,
    };
  }

  #interval(key: string, now: number): number {
    const last = this.#intervals.get(key);
    const interval = last ? last.interval * 0.7 + Math.min(5000, now - last.at) * 0.3 : 1000;
    this.#intervals.set(key, {at: now, interval});
    if (this.#intervals.size > 4 * (this.size + 1000)) this.#intervals.clear();
    return interval;
  }
}

function headingAt(glides: ArrayLike<number>, at: number, local: number): number {
  const heading = glides[at]!;
  return heading < -1000 ? NO_HEADING : heading + glides[at + 1]! * progress(glides[at + 2]!, glides[at + 3]!, local);
}
