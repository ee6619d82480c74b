import type {Fields, HistoryPoint, Item, Layer} from "./contract";

const KEPT = 600;

type Point = Pick<HistoryPoint, "t" | "f" | "timing">;

/** Series over the same times: `values` has one list for each key, with null where a key has no result. */
export interface Aligned {
  times: number[];
  values: (number | null)[][];
}

/** The results of a layer over time, by key, as far as the page has heard of them. */
export class Series {
  #points = new Map<string, Point[]>();

  /** Results that came, or were asked for. One of the same time replaces the one before. */
  add(key: string, points: readonly Point[]): void {
    const known = new Map((this.#points.get(key) ?? []).map((point) => [point.t, point]));
    for (const {t, f, timing} of points) known.set(t, timing ? {t, f, timing} : {t, f});
    const sorted = [...known.values()].sort((a, b) => a.t - b.t);
    this.#points.set(key, sorted.slice(-KEPT));
  }

  take(items: readonly Item[]): void {
    for (const item of items) this.add(item.k, [item]);
  }

  /** The last result of a key does not hold any longer. */
  takeBack(key: string): void {
    this.#points.get(key)?.pop();
  }

  /** Of the keys that are `shown` those whose last values of a field are greatest, greatest first; equal ones by name. */
  greatest(field: string, most: number, shown: ReadonlySet<string>): string[] {
    const last = [...this.#points].flatMap(([key, points]) => {
      const value = shown.has(key) ? points.at(-1)?.f[field] : null;
      return typeof value === "number" ? [{key, value}] : [];
    });
    return last
      .sort((a, b) => b.value - a.value || (a.key < b.key ? -1 : 1))
      .slice(0, most)
      .map(({key}) => key);
  }

  aligned(keys: readonly string[], field: string): Aligned {
    const rows = keys.map((key) => new Map((this.#points.get(key) ?? []).map(({t, f}) => [t, numberOf(f, field)])));
    const times = [...new Set(rows.flatMap((row) => [...row.keys()]))].sort((a, b) => a - b);
    return {times, values: rows.map((row) => times.map((t) => row.get(t) ?? null))};
  }

  /** All keys that are `shown` as one: every result by itself. */
  scattered(field: string, shown: ReadonlySet<string>): Aligned {
    const points = [...this.#points]
      .flatMap(([key, results]) => (shown.has(key) ? results : []))
      .flatMap(({t, f}) => {
        const value = numberOf(f, field);
        return value === null ? [] : [{t, value}];
      })
      .sort((a, b) => a.t - b.t);
    return {times: points.map(({t}) => t), values: [points.map(({value}) => value)]};
  }
}

/** Windows of different lengths are sessions: each is a result of its own, and no line leads from one to the next. */
export function isScattered({period}: Layer, items: Iterable<Pick<Item, "f">>): boolean {
  if (period) return false;
  for (const {f} of items) if (typeof f["window_start"] === "number" && typeof f["window_end"] === "number") return true;
  return false;
}

function numberOf(fields: Fields, field: string): number | null {
  const value = fields[field];
  return typeof value === "number" ? value : null;
}
