import type {Item, Layer} from "../contract";
import {formatNumber} from "../format";
import {colourings} from "../scale";
import type {State} from "../state";
import type {Store} from "../store";
import {h, iconButton, setText, throttled} from "./dom";
import {legend} from "./legend";

/** The switches of the layers, each with its legend. */
export class LayerList {
  readonly root = h("div", {className: "layer-list"});
  #counts = new Map<string, HTMLElement>();
  #legends = new Map<string, HTMLElement>();
  #early = new Map<string, HTMLElement>();
  #partial = new Map<string, HTMLElement>();

  constructor(
    private readonly state: State,
    private readonly store: Store,
    private readonly actions: {showTable: (layer: string) => void},
  ) {
    for (const signal of [state.layers, state.on, state.colourBy, state.themes.theme, state.trails] as const) {
      (signal as {subscribe(listener: () => void): unknown}).subscribe(() => this.#render());
    }
    const count = throttled(() => this.#count(), 500);
    store.subscribe(count);
    state.status.subscribe(count);
    this.#render();
  }

  #render(): void {
    const focused = (document.activeElement as HTMLElement | null)?.id;
    this.#counts.clear();
    this.#legends.clear();
    this.#early.clear();
    this.#partial.clear();
    this.root.replaceChildren(h("h2", {}, "Layers"), h("ul", {}, ...this.state.layers.value.map((layer) => this.#row(layer))));
    this.#count();
    if (focused && this.root.querySelector(`#${CSS.escape(focused)}`)) document.getElementById(focused)?.focus();
  }

  #row(layer: Layer): HTMLElement {
    const on = this.state.on.value.has(layer.name);
    const count = h("span", {className: "count", data: {test: `count-${layer.name}`}});
    this.#counts.set(layer.name, count);
    const id = `layer-${layer.name}`;
    const box = h("input", {type: "checkbox", role: "switch", id, checked: on, onchange: () => this.state.toggleLayer(layer.name)});
    const more = h("div", {className: "more"});
    if (on) {
      if (layer.about) more.append(h("p", {className: "about"}, layer.about));
      const partial = h("p", {className: "partial", hidden: true, data: {test: `partial-${layer.name}`}});
      this.#partial.set(layer.name, partial);
      more.append(partial);
      const {colours} = this.state.coloursOf(layer);
      const shown = h("div", {}, legend(layer, colours));
      this.#legends.set(layer.name, shown);
      if (layer.show !== "table") more.append(shown);
      const early = h("p", {className: "provisional-key", hidden: true}, h("i", {}), "hatched: provisional");
      this.#early.set(layer.name, early);
      const options = this.#options(layer);
      if (layer.geometry.kind === "cell") more.append(early);
      if (options) more.append(options);
    }
    return h(
      "li",
      {className: on ? "layer on" : "layer", data: {layer: layer.name, show: layer.show}},
      h(
        "div",
        {className: "layer-head"},
        h("label", {htmlFor: id}, box, h("span", {className: "switch"}), h("span", {className: "title"}, layer.title), count),
        on && iconButton("table", `${layer.title} as a table`, () => this.actions.showTable(layer.name)),
      ),
      on && more,
    );
  }

  #options(layer: Layer): HTMLElement | null {
    const options = h("div", {className: "options"});
    const ways = colourings(layer);
    if (ways.length > 1) {
      const select = h(
        "select",
        {id: `colour-${layer.name}`, aria: {label: `Colour ${layer.title} by`}},
        ...ways.map(({value}) => h("option", {value: value?.field ?? ""}, `by ${value?.label ?? "nothing"}`)),
      );
      select.value = this.state.colourBy.value[layer.name] ?? ways[0]!.value?.field ?? "";
      select.onchange = () => {
        const {[layer.name]: _, ...rest} = this.state.colourBy.value;
        this.state.colourBy.set(select.value === ways[0]!.value?.field ? rest : {...rest, [layer.name]: select.value});
      };
      options.append(select);
    }
    if (layer.show === "moving") {
      const trails = h("input", {type: "checkbox", id: `trails-${layer.name}`, checked: this.state.trails.value, data: {test: "trails"}});
      trails.onchange = () => this.state.trails.set(trails.checked);
      options.append(h("label", {className: "check"}, trails, "Trails"));
    }
    return options.childElementCount > 0 ? options : null;
  }

  #count(): void {
    for (const layer of this.state.layers.value) {
      const element = this.#counts.get(layer.name);
      const count = this.store.items(layer.name).size;
      if (element) setText(element, this.state.on.value.has(layer.name) ? String(count) : "");
      const few = this.state.status.value?.partial?.[layer.name];
      const partial = this.#partial.get(layer.name);
      if (partial) {
        partial.hidden = !few;
        setText(partial, few ? `showing ${formatNumber(few.shown)} of ${formatNumber(few.keys)}` : "");
      }
      const early = this.#early.get(layer.name);
      if (early?.hidden) early.hidden = !hasEarly(this.store.items(layer.name));
      // Categories that came up since belong to the legend.
      const {colours} = this.state.coloursOf(layer);
      const shown = this.#legends.get(layer.name);
      if (shown && colours.kind === "categorical" && shown.querySelectorAll("li").length !== colours.entries.length) {
        shown.replaceChildren(legend(layer, colours));
      }
    }
  }
}

function hasEarly(items: ReadonlyMap<string, Item>): boolean {
  for (const {timing} of items.values()) if (timing === "EARLY") return true;
  return false;
}
