import type {Item, Layer} from "../contract";
import {natural} from "../filters";
import {formatTime} from "../format";
import {timingOf} from "./describe";
import {h, setText} from "./dom";
import {formatCell} from "./tablecell";
import {columnsOf, isWindowed, type Column} from "./tablecolumns";

const ROWS = 100;

/** The results of a layer as rows, which scroll under their headings. */
export class ResultTable {
  readonly root: HTMLElement;
  #caption = h("caption", {});
  #head = h("thead", {});
  #body = h("tbody", {});

  constructor(private readonly open: (layer: string, key: string) => void) {
    const table = h("table", {className: "results"}, this.#caption, this.#head, this.#body);
    this.root = h("div", {className: "scroll", tabIndex: 0, role: "region", aria: {label: "Table of results"}}, table);
  }

  clear(): void {
    this.#body.replaceChildren();
  }

  show(layer: Layer, shown: Iterable<Item>): void {
    const items = [...shown];
    const columns = columnsOf(layer);
    const windowed = isWindowed(layer, items);
    const sorted = items.sort(layer.geometry.kind === "none" ? byTime : byValue).slice(0, ROWS);
    this.root.setAttribute("aria-label", `Table of results: ${layer.title}`);
    setText(this.#caption, `${layer.title}: ${items.length} ${items.length === 1 ? "result" : "results"}${items.length > ROWS ? `, the first ${ROWS}` : ""}`);
    const numeric = new Set(columns.slice(1).flatMap(({field}) => (sorted.some(({f}) => typeof f[field] === "number") ? [field] : [])));
    const titles = columns.map(({field, heading}) => h("th", {scope: "col", className: numeric.has(field) ? "number" : ""}, heading));
    this.#head.replaceChildren(h("tr", {}, ...titles, h("th", {scope: "col", className: "number"}, windowed ? "window" : "time")));
    const focused = this.#body.contains(document.activeElement) ? document.activeElement?.closest<HTMLElement>("tr[data-key]")?.dataset["key"] : undefined;
    this.#body.replaceChildren(...sorted.map((item) => this.#row(layer, item, columns, numeric, windowed)));
    if (focused !== undefined) this.#body.querySelector<HTMLElement>(`tr[data-key="${CSS.escape(focused)}"] button`)?.focus({preventScroll: true});
  }

  #row(layer: Layer, item: Item, columns: Column[], numeric: ReadonlySet<string>, windowed: boolean): HTMLElement {
    const cells = columns.map(({field}, index) => {
      const text = formatCell(item.f[field] ?? (field === layer.value?.field ? item.v : undefined));
      // What is too long for its column is told in full by its title.
      if (index > 0) return h("td", {className: numeric.has(field) ? "number" : "", title: text}, text);
      return h("th", {scope: "row", title: text}, h("button", {type: "button", className: "row-link", onclick: () => this.open(layer.name, item.k)}, text));
    });
    const timing = timingOf(item);
    const when = windowed ? windowOf(item) : formatTime(item.t);
    return h("tr", {className: timing?.label ?? "", title: timing?.title ?? "", data: {key: item.k}}, ...cells, h("td", {className: "number when-cell"}, when));
  }
}

/** "12:00:00 – 12:05:30" */
export function windowOf({f, t}: Pick<Item, "f" | "t">): string {
  const [start, end] = [f["window_start"], f["window_end"]];
  return typeof start === "number" && typeof end === "number" ? `${formatTime(start)} – ${formatTime(end)}` : formatTime(t);
}

function byTime(a: Item, b: Item): number {
  return b.t - a.t || natural(a.k, b.k);
}

function byValue(a: Item, b: Item): number {
  if (typeof a.v === "number" && typeof b.v === "number" && a.v !== b.v) return b.v - a.v;
  return natural(a.k, b.k);
}
