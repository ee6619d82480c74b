import type {Item, Layer} from "../contract";
import type {State} from "../state";
import type {Store} from "../store";
import {h, setText, throttled} from "./dom";
import {Plot, type PlotPoint} from "./plot";
import {ResultTable} from "./resulttable";

const REMEMBERED = 600;

/** Results without a place, live; and for whoever does not see the map, all others as well. */
export class Tables {
  readonly root = h("div", {className: "tables", data: {test: "tables"}});
  #select = h("select", {aria: {label: "Which results"}, data: {test: "table-layer"}});
  #plot = new Plot();
  #about = h("p", {className: "about"});
  #table: ResultTable;
  #series = new Map<string, PlotPoint[]>();
  #render: () => void;

  constructor(
    private readonly state: State,
    private readonly store: Store,
    open: (layer: string, key: string) => void,
  ) {
    this.#table = new ResultTable(open);
    this.root.append(this.#select, this.#about, this.#plot.root, this.#table.root);
    this.#render = throttled(() => this.#show(), 700);
    this.#select.onchange = () => state.table.set(this.#select.value);
    state.layers.watch(() => this.#fill());
    state.table.subscribe(() => this.#fill());
    state.tab.subscribe(this.#render);
    state.on.subscribe(this.#render);
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
    this.#table.clear();
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
    const items = this.store.items(layer.name);
    const on = this.state.on.value.has(layer.name);
    setText(this.#about, on ? (layer.about ?? "") : "This layer is off: turn it on to see its results.");
    this.#table.show(layer, items.values());
    const series = this.#series.get(layer.name) ?? [];
    this.#plot.root.hidden = layer.geometry.kind !== "none" || series.length < 2 || layer.value === null;
    if (layer.value) this.#plot.show(series, {label: layer.value.label, ...(layer.value.unit && {unit: layer.value.unit}), dots: items.size > 1});
  }
}
