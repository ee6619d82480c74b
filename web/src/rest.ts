import type {Status} from "./contract";

/** Milliseconds without anything new after which readers are told that a log is at rest. */
const REST_AFTER = 30_000;
/** The server looks and tells once a second each, on a busy machine a little later: what is older was not renewed. */
const RENEWED = 3_000;

type Activity = Pick<Status, "now" | "last">;

/** Since when nothing has come to the log, if that is long enough to be told of; null while something comes. */
export function atRestSince({now, last}: Activity): number | null {
  return last !== null && last !== undefined && now - last >= REST_AFTER ? last : null;
}

/** The moment at which the log's time stands still: that of the last thing that came, or never while things come. */
export function standsAt({now, last}: Activity): number {
  return last !== null && last !== undefined && now - last > RENEWED ? last : Infinity;
}
