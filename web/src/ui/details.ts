import type {App} from "../app";
import type {HistoryPoint, Item, Layer} from "../contract";
import {formatAge, formatPlace, formatTime, formatValue} from "../format";
import {lastOf, spanOf} from "../span";
import type {Selected} from "../url";
import {identifier, nameOf, placeOf, timingOf} from "./describe";
import {fill, h, icon, setText} from "./dom";
import {plottable, plottedFirst} from "./figures";
import {Plot} from "./plot";

/** The figures of what was clicked, and a plot of its last minutes. */
export class Details {
  readonly root = h("div", {className: "details", data: {test: "details"}});
  #empty = h("p", {className: "empty"});
  #head = h("div", {});
  #select = h("select", {aria: {label: "What to plot"}, data: {test: "plot-field"}});
  #plotted = h("b", {});
  #plotSpan = h("span", {});
  #plotHead = h("div", {className: "plot-head"}, this.#select, this.#plotted, this.#plotSpan);
  #plot = new Plot();
  #facts = h("dl", {className: "figures"});
  #there = h("button", {type: "button", className: "quiet", data: {test: "go-there"}}, icon("target"), "Go there");
  #history: HistoryPoint[] = [];
  #item: Item | null = null;
  #onMap = false;
  #retracted = false;
  #field: string | null = null;
  #abort: AbortController | null = null;
  /** It was asked before event time was known. */
  #tooEarly = false;
  #age = h("dd", {});
  #note = h("p", {className: "note", role: "status"});
  /** Results come every second: what can have the focus is made once, and the rest anew. */
  #body = h("div", {}, this.#head, this.#plotHead, this.#plot.root, h("div", {className: "facts"}, this.#facts, this.#there));

  constructor(
    private readonly app: Pick<App, "state" | "store" | "api" | "clock" | "eventClock" | "travel" | "alerts">,
    private readonly actions: {flyTo: (lon: number, lat: number) => void; path: (path: [number, number][]) => void},
  ) {
    const {state, store, travel, eventClock} = app;
    this.root.append(this.#empty, this.#body, this.#note);
    this.#select.onchange = () => {
      this.#field = this.#select.value;
      this.#render();
    };
    this.#there.onclick = () => {
      const place = this.#item && placeOf(this.#item);
      if (place) actions.flyTo(...place);
    };
    state.selected.watch(() => this.#open());
    state.layers.subscribe(() => this.#open());
    state.themes.theme.subscribe(() => this.#plot.restyle());
    store.subscribe(({layer, changed, retracted}) => {
      const selected = state.selected.value;
      if (!selected || layer !== selected.layer) return;
      const item = this.#shown(selected);
      if (item && changed.includes(item)) this.#take(item);
      else if (!item && this.#onMap) {
        this.#retracted = retracted.includes(selected.key);
        this.#render();
      }
    });
    travel.moment.subscribe((moment) => {
      if (moment.kind === "live" || !moment.loading) void this.#load();
    });
    eventClock.shown.subscribe(() => {
      if (this.#tooEarly && eventClock.known) void this.#load();
    });
    window.setInterval(() => this.#showAge(), 1000);
  }

  #open(): void {
    const selected = this.app.state.selected.value;
    this.#history = [];
    this.#field = null;
    this.#retracted = false;
    this.#item = (selected && (this.#shown(selected) ?? this.#happened(selected))) ?? null;
    this.actions.path([]);
    this.#render();
    void this.#load();
  }

  /** What is on the map of it. Another result of its key, such as a later alert, is not what was chosen. */
  #shown({layer, key, t}: Selected): Item | undefined {
    const item = this.app.store.get(layer, key);
    return t === undefined || item?.t === t ? item : undefined;
  }

  /** Alerts are told of for longer than they are on the map. */
  #happened({layer, key, t}: Selected): Item | undefined {
    return t === undefined ? undefined : this.app.alerts.find(layer, key, t);
  }

  #take(item: Item): void {
    this.#item = item;
    this.#retracted = false;
    const last = this.#history.at(-1);
    const point = {t: item.t, v: item.v, f: item.f, ...(item.timing && {timing: item.timing})};
    if (last?.t === item.t) this.#history[this.#history.length - 1] = point;
    else if (!last || last.t < item.t) this.#history.push(point);
    this.#render();
  }

  async #load(): Promise<void> {
    const {state, api, eventClock, travel} = this.app;
    const selected = state.selected.value;
    this.#abort?.abort();
    this.#tooEarly = false;
    if (!selected || !state.layer(selected.layer)) return;
    const abort = (this.#abort = new AbortController());
    this.#tooEarly = !eventClock.known;
    const clock = eventClock.known ? eventClock.time : null;
    const span = spanOf({own: selected.t, shown: this.#shown(selected)?.t, clock, past: travel.past !== null});
    try {
      const {points} = await api.history(selected.layer, selected.key, span, abort.signal);
      if (abort.signal.aborted) return;
      this.#history = lastOf(points);
      const last = points.at(-1);
      if (!this.#item && last && last.t === (selected.t ?? last.t)) this.#item = {k: selected.key, x: 0, ...last};
      this.#render();
      setText(this.#note, "");
    } catch (error) {
      if (!abort.signal.aborted) setText(this.#note, `The last minutes could not be had: ${error instanceof Error ? error.message : String(error)}`);
    }
  }

  #render(): void {
    const {state} = this.app;
    const selected = state.selected.value;
    this.#onMap = selected !== null && this.#shown(selected) !== undefined;
    const layer = selected && state.layer(selected.layer);
    const item = this.#item;
    this.#body.hidden = !layer || !item;
    this.#empty.hidden = !this.#body.hidden;
    if (!selected || !layer) return setText(this.#empty, state.mapped.value === false ? "Choose a row to see its figures here." : "Click a hexagon, a vehicle or an arrow to see its figures here.");
    if (!item) return setText(this.#empty, `Nothing is known of ${selected.key} in “${layer.title}” at this time.`);
    this.root.classList.toggle("stale", !this.#onMap);
    this.root.dataset["key"] = item.k;
    fill(this.#head, ...this.#headOf(layer, item));
    this.#showPlot(layer);
    fill(this.#facts, ...this.#factsOf(item));
    this.#there.hidden = placeOf(item) === null;
    this.#showAge();
    if (layer.geometry.kind === "point") this.#showPath(layer);
  }

  #headOf(layer: Layer, item: Item): HTMLElement[] {
    const {colours, main} = this.app.state.coloursOf(layer);
    const timing = timingOf(item);
    const note = `${this.#retracted ? "Retracted: it does not hold any longer" : this.app.state.mapped.value === false ? "No longer shown" : "No longer on the map"}; these are its last figures.`;
    const rows = layer.figures
      .filter(({field}) => field !== layer.value?.field && item.f[field] !== undefined && !layer.key.includes(field))
      .map(({field, label, unit}) => h("div", {data: {figure: field}}, h("dt", {}, label), h("dd", {}, formatFigure(item.f[field], unit))));
    return [
      h("p", {className: "kicker"}, h("i", {className: "dot", style: `background:${colours.css(colours.valueOf(item, main))}`}), layer.title),
      h("h3", {data: {test: "details-name"}}, nameOf(item, layer)),
      ...(layer.value && item.v !== null
        ? [
            h(
              "p",
              {className: "big"},
              h("b", {data: {test: "details-value"}}, formatValue(item.v)),
              h("span", {}, [layer.value.unit === "time" ? "" : layer.value.unit, layer.value.label].filter(Boolean).join(" ")),
              timing && h("em", {className: `timing ${timing.label}`, title: timing.title, data: {test: "timing"}}, timing.label),
            ),
          ]
        : []),
      ...(!this.#onMap ? [h("p", {className: "note", data: {test: "gone"}}, note)] : []),
      h("dl", {className: "figures"}, ...rows),
    ];
  }

  /** The plot, and the choice of what to plot where there is one. */
  #showPlot(layer: Layer): void {
    const figures = plottable(layer, this.#history);
    const figure = figures.find(({field}) => field === this.#field) ?? plottedFirst(layer, figures, this.app.state.coloursOf(layer).colours.field);
    const points = figure
      ? this.#history
          .filter(({f}) => typeof f[figure.field] === "number")
          .map(({t, f, timing}) => ({t, v: f[figure.field] as number, provisional: timing === "EARLY"}))
      : [];
    this.#plotHead.hidden = this.#plot.root.hidden = points.length === 0;
    if (!figure) return;
    setText(this.#plotSpan, this.app.state.selected.value?.t === undefined ? "last 15 minutes" : "15 minutes up to it");
    this.#plot.show(points, {label: figure.label, ...(figure.unit && {unit: figure.unit})});
    this.#select.hidden = figures.length === 1;
    this.#plotted.hidden = figures.length > 1;
    setText(this.#plotted, figure.label);
    // An open list of choices stays open: it changes only when there are others.
    const offered = [...this.#select.options].map(({value}) => value);
    if (offered.join() !== figures.map(({field}) => field).join()) {
      this.#select.replaceChildren(...figures.map(({field, label}) => h("option", {value: field}, label)));
    }
    this.#select.value = figure.field;
  }

  #factsOf(item: Item): HTMLElement[] {
    const place = placeOf(item);
    const row = (label: string, value: HTMLElement): HTMLElement => h("div", {}, h("dt", {}, label), value);
    return [
      row("event time", h("dd", {}, formatTime(item.t))),
      row("updated", this.#age),
      ...(item.c ? [row("cell", h("dd", {className: "code"}, item.c))] : []),
      ...(place ? [row("place", h("dd", {}, formatPlace(...place)))] : []),
    ];
  }

  #showAge(): void {
    const {state, travel, clock} = this.app;
    const layer = state.selected.value && state.layer(state.selected.value.layer);
    if (!this.#item || !layer || travel.past || this.#item.x === 0) return setText(this.#age, "–");
    const arrival = this.#item.x - layer.expiry / state.speed.value;
    setText(this.#age, formatAge(Math.max(0, clock.now() - arrival)));
  }

  #showPath(layer: Layer): void {
    if (layer.geometry.kind !== "point" || layer.show === "alerts") return;
    const {lon, lat} = layer.geometry;
    const path = this.#history.flatMap(({f}) => {
      const place = [f[lon], f[lat]];
      return place.every((value) => typeof value === "number") ? [place as [number, number]] : [];
    });
    this.actions.path(path);
  }
}

function formatFigure(value: unknown, unit: string | undefined): string {
  return unit ? formatValue(value, unit) : typeof value === "number" && Number.isInteger(value) && value < 1e9 ? identifier(value) : formatValue(value);
}

