import type {App} from "../app";
import {Card} from "./card";
import {fill, h, throttled} from "./dom";

/** In the place of the map where no result has a place: each layer as plots and a table. */
export class Board {
  #cards = new Map<string, Card>();
  #list = h("div", {className: "cards"});
  #empty = h("div", {className: "board-empty", data: {test: "nothing-yet"}});

  constructor(
    root: HTMLElement,
    private readonly app: Pick<App, "state" | "store" | "api">,
    private readonly open: (layer: string, key: string) => void,
  ) {
    const {state, store} = app;
    root.append(this.#empty, this.#list);
    const render = throttled(() => this.#render(), 100);
    state.layers.subscribe(render);
    state.on.subscribe(render);
    state.status.subscribe(() => this.#cards.size === 0 && render());
    state.mapped.watch((mapped) => {
      root.hidden = mapped !== false;
      render();
    });
    state.themes.theme.subscribe(() => this.#cards.forEach((card) => card.restyle()));
    store.subscribe((change) => this.#cards.get(change.layer)?.take(change));
  }

  /** Brings the card of a layer before the reader. */
  goTo(layer: string): void {
    this.#cards.get(layer)?.focus();
  }

  #render(): void {
    const {state} = this.app;
    if (state.mapped.value !== false) {
      // Only what is seen costs anything.
      this.#cards.clear();
      return this.#list.replaceChildren();
    }
    const shown = state.layers.value.filter(({name}) => state.on.value.has(name));
    const cards = new Map(
      shown.map((layer) => {
        const known = this.#cards.get(layer.name);
        known?.describe(layer);
        return [layer.name, known ?? new Card(layer, this.app, this.open)];
      }),
    );
    const before = [...this.#cards.values()];
    this.#cards = cards;
    const after = [...cards.values()];
    if (before.length !== after.length || before.some((card, index) => card !== after[index])) this.#list.replaceChildren(...after.map(({root}) => root));
    this.#empty.hidden = shown.length > 0;
    if (shown.length === 0) fill(this.#empty, ...this.#nothing());
  }

  #nothing(): HTMLElement[] {
    const {layers, status} = this.app.state;
    if (layers.value.length > 0) return [h("h2", {}, "All layers are off"), h("p", {}, "Turn one on to see its results.")];
    const code = (text: string): HTMLElement => h("code", {}, text);
    if (status.value?.event_time != null) {
      return [
        h("h2", {}, "No results yet"),
        h("p", {}, "Events have come to this log. A job makes results of them:"),
        h("p", {}, code("tidewheel run JOB.py --log LOG")),
        h("p", {}, "They are here as soon as the job gives any; no reload is needed."),
      ];
    }
    return [
      h("h2", {}, "Nothing is in this log yet"),
      h("p", {}, "First come events, then a job that makes results of them:"),
      h("p", {}, code("tidewheel ingest --help")),
      h("p", {}, code("tidewheel run JOB.py --log LOG")),
      h("p", {}, "Results are here as soon as there are any; no reload is needed."),
    ];
  }
}
