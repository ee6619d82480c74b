import type {Alert, Item} from "./contract";

/** The alerts of the last hour, newest first. They outlive what is on the map. */
export class AlertLog {
  #alerts: Alert[] = [];
  #known = new Set<string>();

  constructor(
    private readonly keptFor = 3_600_000,
    private readonly most = 500,
  ) {}

  /** True for one that was not known. The same vehicle may give another later: its time tells them apart. */
  add(layer: string, item: Item): boolean {
    const id = alertId(layer, item);
    if (this.#known.has(id)) return false;
    this.#known.add(id);
    const alert = {...item, layer};
    const at = this.#alerts.findIndex((other) => other.t <= alert.t);
    this.#alerts.splice(at < 0 ? this.#alerts.length : at, 0, alert);
    return true;
  }

  /** That of a key which happened at that time. */
  find(layer: string, key: string, t: number): Alert | undefined {
    return this.#alerts.find((alert) => alert.layer === layer && alert.k === key && alert.t === t);
  }

  /** Forgets those older than is kept before `now`, and too many. */
  trim(now: number): boolean {
    const before = this.#alerts.length;
    const kept = this.#alerts.filter((alert, index) => alert.t > now - this.keptFor && index < this.most);
    if (kept.length === before) return false;
    this.#alerts = kept;
    this.#known = new Set(kept.map((alert) => alertId(alert.layer, alert)));
    return true;
  }

  /** Those that had happened by `until`, newest first. */
  list(until = Infinity): readonly Alert[] {
    return until === Infinity ? this.#alerts : this.#alerts.filter((alert) => alert.t <= until);
  }
}

export function alertId(layer: string, item: Item): string {
  return `${layer}:${item.k}@${item.t}`;
}
