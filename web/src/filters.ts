import type {Filters, Item, Layer} from "./contract";

/** The fields of a layer's items in which a filter looks for its values. */
function looksAt(layer: Layer, filter: string): string[] {
  return [filter, ...(layer.filters_also?.[filter] ?? [])];
}

/** Does the item pass? Only the fields that its layer lets filters look at count. */
export function passes(item: Item, layer: Layer, filters: Filters): boolean {
  for (const filter of layer.filters) {
    const allowed = filters[filter];
    if (!allowed || allowed.length === 0) continue;
    if (!looksAt(layer, filter).some((field) => allowed.includes(String(item.f[field] ?? "")))) return false;
  }
  return true;
}

/** The filters with one value of one field switched. */
export function toggled(filters: Filters, field: string, value: string): Filters {
  const allowed = filters[field] ?? [];
  return only(filters, field, allowed.includes(value) ? allowed.filter((other) => other !== value) : [...allowed, value]);
}

/** The filters with these values of a field; none of them lifts the field's filter. */
export function only(filters: Filters, field: string, values: string[]): Filters {
  const {[field]: _, ...rest} = filters;
  return values.length > 0 ? {...rest, [field]: [...values].sort(natural)} : rest;
}

/** Values in one text, with commas between them; a comma within one is `\,` there, and a backslash `\\`. */
export function joinValues(values: readonly string[]): string {
  return values.map((value) => value.replace(/[\\,]/g, "\\$&")).join(",");
}

export function splitValues(text: string): string[] {
  const values = [""];
  for (const [part] of text.matchAll(/\\[\\,]|,|[^\\,]+|\\/g)) {
    if (part === ",") values.push("");
    else values[values.length - 1] += part.length > 1 ? part.replace(/^\\/, "") : part;
  }
  return values;
}

export function isEmpty(filters: Filters): boolean {
  return Object.values(filters).every((values) => values.length === 0);
}

/** "9" before "10", "55" before "55K". */
export function natural(a: string, b: string): number {
  return a.localeCompare(b, undefined, {numeric: true});
}

/** The values that were ever seen by each filter's fields: what a filter can offer. */
export class Known {
  #values = new Map<string, Set<string>>();
  #sorted = new Map<string, string[]>();

  /** True when something new was among them. */
  learn(layer: Layer, items: readonly Item[]): boolean {
    let fresh = false;
    for (const filter of layer.filters) {
      let values = this.#values.get(filter);
      if (!values) this.#values.set(filter, (values = new Set()));
      const before = values.size;
      for (const field of looksAt(layer, filter)) {
        for (const item of items) {
          const value = item.f[field];
          if (value !== undefined && value !== null && value !== "") values.add(String(value));
        }
      }
      if (values.size > before) {
        fresh = true;
        this.#sorted.delete(filter);
      }
    }
    return fresh;
  }

  of(filter: string): string[] {
    let sorted = this.#sorted.get(filter);
    if (!sorted) this.#sorted.set(filter, (sorted = [...(this.#values.get(filter) ?? [])].sort(natural)));
    return sorted;
  }
}
