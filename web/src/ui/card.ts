import type {App} from "../app";
import type {Figure, Layer} from "../contract";
import {formatNumber} from "../format";
import {categoryColours} from "../scale";
import {isScattered, Series} from "../series";
import type {Change} from "../store";
import {fill, h, setText, throttled} from "./dom";
import {plottable} from "./figures";
import {LinePlot} from "./lineplot";
import {ResultTable} from "./resulttable";

const PLOTS = 4;
const LINES = 8;

/** One layer on the board: a plot for each of its numbers, a line in it for each key, and the latest results as a table. */
export class Card {
  readonly root: HTMLElement;
  #series = new Series();
  #asked = new Set<string>();
  #colours = new Map<string, number>();
  #plots = new Map<string, LinePlot>();
  #count = h("span", {className: "count"});
  #plotList = h("div", {className: "plots"});
  #legend = h("ul", {className: "line-keys"});
  #none = h("p", {className: "empty"}, "No results now.");
  #table: ResultTable;
  #heading: HTMLElement;
  #about = h("p", {className: "about"});
  #render: () => void;

  constructor(
    private layer: Layer,
    private readonly app: Pick<App, "state" | "store" | "api">,
    open: (layer: string, key: string) => void,
  ) {
    const id = `card-${layer.name}`;
    this.#heading = h("h2", {id, tabIndex: -1});
    this.#table = new ResultTable(open);
    this.root = h(
      "section",
      {className: "card", data: {card: layer.name}, aria: {labelledby: id}},
      h("header", {className: "card-head"}, this.#heading, this.#count),
      this.#about,
      this.#legend,
      this.#plotList,
      this.#none,
      this.#table.root,
    );
    this.#render = throttled(() => this.#show(), 500);
    this.#series.take([...app.store.items(layer.name).values()]);
    this.#show();
  }

  /** The layer was described anew: what the reader is at stays. */
  describe(layer: Layer): void {
    this.layer = layer;
    this.#render();
  }

  take({changed, retracted}: Change): void {
    for (const key of retracted) this.#series.takeBack(key);
    this.#series.take(changed);
    this.#render();
  }

  restyle(): void {
    this.#show();
    for (const plot of this.#plots.values()) plot.restyle();
  }

  focus(): void {
    this.root.scrollIntoView({block: "start"});
    this.#heading.focus({preventScroll: true});
  }

  #show(): void {
    const {layer} = this;
    const items = [...this.app.store.items(layer.name).values()];
    const shown = new Set(items.map(({k}) => k));
    setText(this.#heading, layer.title);
    setText(this.#about, layer.about ?? "");
    this.#about.hidden = !layer.about;
    setText(this.#count, `${formatNumber(items.length)} ${items.length === 1 ? "result" : "results"}`);
    this.#none.hidden = items.length > 0;
    this.#table.root.hidden = items.length === 0;
    this.#table.show(layer, items);
    const scattered = isScattered(layer, items);
    const figures = plottable(layer, items).slice(0, PLOTS);
    const keys = scattered || !figures[0] ? [] : this.#series.greatest(figures[0].field, LINES, shown);
    for (const key of keys) void this.#ask(key);
    const theme = this.app.state.themes.theme.value;
    const colours = scattered ? [categoryColours(theme)[0]!] : keys.map((key) => this.#colourOf(key, theme));
    this.#tellKeys(keys, colours, shown.size - keys.length);
    this.#arrange(figures);
    for (const {field, label, unit} of figures) {
      const data = scattered ? this.#series.scattered(field, shown) : this.#series.aligned(keys, field);
      this.#plots.get(field)!.show(data, {label, ...(unit && {unit}), names: scattered ? [label] : keys, colours, scattered});
    }
  }

  /** What came before the page was opened. */
  async #ask(key: string): Promise<void> {
    if (this.#asked.has(key)) return;
    this.#asked.add(key);
    const found = await this.app.api.history(this.layer.name, key, {}, new AbortController().signal).catch(() => null);
    if (found) {
      this.#series.add(key, found.points);
      this.#render();
    } else this.#asked.delete(key);
  }

  /** A key keeps its colour for as long as the page is open. */
  #colourOf(key: string, theme: "light" | "dark"): string {
    let number = this.#colours.get(key);
    if (number === undefined) this.#colours.set(key, (number = this.#colours.size));
    const colours = categoryColours(theme);
    return colours[number % colours.length]!;
  }

  #tellKeys(keys: string[], colours: string[], more: number): void {
    this.#legend.hidden = keys.length < 2;
    const wanted = JSON.stringify([keys, colours, more]);
    if (this.#legend.dataset["keys"] === wanted) return;
    this.#legend.dataset["keys"] = wanted;
    fill(
      this.#legend,
      ...keys.map((key, index) => h("li", {title: key}, h("i", {style: `background:${colours[index]}`}), h("span", {}, key))),
      keys.length > 0 && more > 0 && h("li", {className: "others"}, `and ${formatNumber(more)} more in the table`),
    );
  }

  /** A plot for each figure, in their order; those that stay are left alone. */
  #arrange(figures: Figure[]): void {
    const wanted = figures.map(({field}) => field).join();
    this.#plotList.hidden = figures.length === 0;
    if (this.#plotList.dataset["fields"] === wanted) return;
    this.#plotList.dataset["fields"] = wanted;
    this.#plots = new Map(figures.map(({field}) => [field, this.#plots.get(field) ?? new LinePlot()]));
    fill(
      this.#plotList,
      ...figures.map(({field, label, unit}) => h("figure", {data: {plot: field}}, h("figcaption", {}, `${label}${unit ? `, ${unit}` : ""}`), this.#plots.get(field)!.root)),
    );
  }
}
