import type {Item, Layer} from "../contract";
import {formatTime} from "../format";
import {natural} from "../filters";
import type {State} from "../state";
import type {Store} from "../store";
import {formatCell} from "./tablecell";
import {timingOf} from "./describe";
import {h, setText, throttled} from "./dom";
import {Plot, type PlotPoint} from "./plot";
import {columnsOf, type Column} from "./tablecolumns";

const ROWS = 100;
const REMEMBERED = 600;

/** Results without a place, live; and for whoever does not see the map, all others as well. */
export class Tables {
  readonly root = h("div", {className: "tables", data: {test: "tables"}});
  #select = h("select", {aria: {label: "Which results"}, data: {test: "table-layer"}});
  #plot = new Plot();
  #about = h("p", {className: "about"});
  #caption = h("caption", {});
  #head = h("thead", {});
  #body = h("tbody", {});
  #series = new Map<string, PlotPoint[]>();
  #render: () => void;

  constructor(
    private readonly state: State,
    private readonly store: Store,
    private readonly open: (layer: string, key: string) => void,
  ) {
    const table = h("table", {}, this.#caption, this.#head, this.#body);
    this.root.append(this.#select, this.#about, this.#plot.root, h("div", {className: "scroll", tabIndex: 0, role: "region", aria: {label: "Table of results"}}, table));
    this.#render = throttled(() => this.#show(), 700);
    this.#select.onchange = () => state.table.set(this.#select.value);
    state.layers.watch(() => this.#fill());
    state.table.subscribe(() => this.#fill());
    state.tab.subscribe(this.#render);
    state.themes.theme.subscribe(() => this.#plot.restyle());
    store.subscribe(({layer, changed}) => {
      if (this.state.layer(layer)?.geometry.kind === "none") this.#remember(layer, changed);
      if (layer === this.#layer?.name) this.#render();
    });
  }

  get #layer(): Layer | undefined {
    const {layers, table} = this.state;
    return layers.value.find(({name}) => name === table.value) ?? layers.value.find(({show}) => show === "table") ?? layers.value[0];
  }

  #fill(): void {
    const placeless = this.state.layers.value.filter(({geometry}) => geometry.kind === "none");
    const placed = this.state.layers.value.filter(({geometry}) => geometry.kind !== "none");
    const options = (layers: readonly Layer[]): HTMLElement[] => layers.map(({name, title}) => h("option", {value: name}, title));
    this.#select.replaceChildren(
      ...(placeless.length > 0 ? [h("optgroup", {label: "Without a place"}, ...options(placeless))] : []),
      h("optgroup", {label: "On the map"}, ...options(placed)),
    );
    this.#select.value = this.#layer?.name ?? "";
    this.#body.replaceChildren();
    this.#show();
  }

  #remember(layer: string, items: readonly Item[]): void {
    const series = this.#series.get(layer) ?? [];
    for (const {t, v, timing} of items) if (typeof v === "number") series.push({t, v, provisional: timing === "EARLY"});
    series.sort((a, b) => a.t - b.t);
    this.#series.set(layer, series.slice(-REMEMBERED));
  }

  #show(): void {
    const layer = this.#layer;
    if (!layer || this.state.tab.value !== "tables") return;
    const items = [...this.store.items(layer.name).values()];
    const on = this.state.on.value.has(layer.name);
    setText(this.#about, on ? (layer.about ?? "") : "This layer is off: turn it on to see its results.");
    const columns = columnsOf(layer);
    const sorted = (layer.geometry.kind === "none" ? items.sort((a, b) => b.t - a.t) : items.sort(byValue)).slice(0, ROWS);
    setText(this.#caption, `${layer.title}: ${items.length} ${items.length === 1 ? "result" : "results"}${items.length > ROWS ? `, the first ${ROWS}` : ""}`);
    const numeric = new Set(columns.slice(1).flatMap(({field}) => (sorted.some(({f}) => typeof f[field] === "number") ? [field] : [])));
    const titles = columns.map(({field, heading}) => h("th", {scope: "col", className: numeric.has(field) ? "number" : ""}, heading));
    this.#head.replaceChildren(h("tr", {}, ...titles, h("th", {scope: "col", className: "number"}, "time")));
    const focused = document.activeElement?.closest<HTMLElement>("tr[data-key]")?.dataset["key"];
    this.#body.replaceChildren(...sorted.map((item) => this.#row(layer, item, columns, numeric)));
    if (focused !== undefined) this.#body.querySelector<HTMLElement>(`tr[data-key="${CSS.escape(focused)}"] button`)?.focus({preventScroll: true});
    const series = this.#series.get(layer.name) ?? [];
    this.#plot.root.hidden = layer.geometry.kind !== "none" || series.length < 2 || layer.value === null;
    if (layer.value) this.#plot.show(series, {label: layer.value.label, ...(layer.value.unit && {unit: layer.value.unit}), dots: items.length > 1});
  }

  #row(layer: Layer, item: Item, columns: Column[], numeric: ReadonlySet<string>): HTMLElement {
    const cells = columns.map(({field}, index) => {
      const text = formatCell(item.f[field] ?? (field === layer.value?.field ? item.v : undefined));
      if (index > 0) return h("td", {className: numeric.has(field) ? "number" : ""}, text);
      return h("th", {scope: "row"}, h("button", {type: "button", className: "row-link", onclick: () => this.open(layer.name, item.k)}, text));
    });
    const timing = timingOf(item);
    return h("tr", {className: timing?.label ?? "", data: {key: item.k}}, ...cells, h("td", {className: "number"}, formatTime(item.t)));
  }
}

function byValue(a: Item, b: Item): number {
  if (typeof a.v === "number" && typeof b.v === "number" && a.v !== b.v) return b.v - a.v;
  return natural(a.k, b.k);
}
