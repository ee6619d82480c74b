import type {Item, Items} from "./contract";

/** What became of one layer at once. */
export interface Change {
  layer: string;
  changed: Item[];
  gone: string[];
  /** Those of them that had not expired: they do not hold any longer. */
  retracted: string[];
}

/** The items that are shown now, by layer and identity. */
export class Store {
  #layers = new Map<string, Map<string, Item>>();
  #listeners = new Set<(change: Change) => void>();

  subscribe(listener: (change: Change) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** All there is to see from now on: what is not among it is gone, also whole layers. */
  replace(layers: Items): void {
    for (const layer of new Set([...this.#layers.keys(), ...Object.keys(layers)])) this.replaceLayer(layer, layers[layer] ?? []);
  }

  replaceLayer(layer: string, items: readonly Item[]): void {
    const before = this.#of(layer);
    const after = new Map(items.map((item): [string, Item] => [item.k, item]));
    const gone = [...before.keys()].filter((key) => !after.has(key));
    const changed = [...after.values()].filter((item) => !same(before.get(item.k), item));
    this.#layers.set(layer, after);
    this.#tell({layer, changed, gone, retracted: []});
  }

  /**
   * A newer result, or one of the same time, replaces the one that is shown; an older one is ignored. What is gone has
   * expired at `now`, by the server's clock, or else was retracted.
   */
  update(changed: Items = {}, gone: Record<string, string[]> = {}, now = Infinity): void {
    for (const layer of new Set([...Object.keys(changed), ...Object.keys(gone)])) {
      const items = this.#of(layer);
      const accepted = new Map<string, Item>();
      const left = new Map((gone[layer] ?? []).flatMap((key) => (items.has(key) ? [[key, items.get(key)!] as const] : [])));
      for (const key of left.keys()) items.delete(key);
      for (const item of changed[layer] ?? []) {
        const shown = items.get(item.k);
        if (shown && shown.t > item.t) continue;
        items.set(item.k, item);
        accepted.set(item.k, item);
        left.delete(item.k);
      }
      const retracted = [...left.values()].filter(({x}) => x > now).map(({k}) => k);
      this.#tell({layer, changed: [...accepted.values()], gone: [...left.keys()], retracted});
    }
  }

  /** Takes away what expired by then, should the server be silent about it. */
  expire(now: number): void {
    this.drop((item) => item.x <= now);
  }

  /** Takes away what `unwanted` says. */
  drop(unwanted: (item: Item, layer: string) => boolean): void {
    for (const [layer, items] of this.#layers) {
      const gone: string[] = [];
      for (const item of items.values()) if (unwanted(item, layer)) gone.push(item.k);
      for (const key of gone) items.delete(key);
      this.#tell({layer, changed: [], gone, retracted: []});
    }
  }

  get(layer: string, key: string): Item | undefined {
    return this.#layers.get(layer)?.get(key);
  }

  items(layer: string): ReadonlyMap<string, Item> {
    return this.#of(layer);
  }

  /** How many items each layer has. */
  counts(): Record<string, number> {
    return Object.fromEntries([...this.#layers].map(([layer, items]) => [layer, items.size]));
  }

  #of(layer: string): Map<string, Item> {
    let items = this.#layers.get(layer);
    if (!items) this.#layers.set(layer, (items = new Map<string, Item>()));
    return items;
  }

  #tell(change: Change): void {
    if (change.changed.length === 0 && change.gone.length === 0) return;
    for (const listener of this.#listeners) listener(change);
  }
}

/** A snapshot repeats what is shown already; that it came again is no change. */
function same(shown: Item | undefined, item: Item): boolean {
  return (
    shown !== undefined &&
    shown.t === item.t &&
    shown.x === item.x &&
    shown.v === item.v &&
    shown.timing === item.timing &&
    shown.p?.[0] === item.p?.[0] &&
    shown.p?.[1] === item.p?.[1] &&
    shown.e?.[1] === item.e?.[1]
  );
}
