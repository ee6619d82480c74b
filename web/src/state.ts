import type {Filters, Layer, Status} from "./contract";
import type {Link} from "./live";
import {Colours, colourings} from "./scale";
import {Signal} from "./signal";
import type {Themes} from "./theme";
import type {Selected, Tab, UrlState} from "./url";

/** What the reader chose and what the server told: all panels look at this and nothing else knows of all. */
export class State {
  readonly layers = new Signal<readonly Layer[]>([]);
  readonly on = new Signal<ReadonlySet<string>>(new Set());
  readonly filters: Signal<Filters>;
  readonly selected: Signal<Selected | null>;
  readonly trails: Signal<boolean>;
  /** Layer → field that it is coloured by, where that is not the usual one. */
  readonly colourBy: Signal<Record<string, string>>;
  /** The panel that is open beside the map. */
  readonly tab: Signal<Tab | null>;
  readonly layersOpen = new Signal(true);
  /** The layer that the tables show. */
  readonly table = new Signal<string | null>(null);
  readonly status = new Signal<Status | null>(null);
  readonly link = new Signal<Link>({kind: "connecting", transport: "websocket", failures: 0});
  /** How much faster than life the events come. */
  readonly speed = new Signal(1);
  /** Is there a map? Null until it is known whether anything has a place. */
  readonly mapped = new Signal<boolean | null>(null);
  /** Something that went wrong and that the reader should know. */
  readonly problem = new Signal<string | null>(null);
  #chosen: ReadonlySet<string> | null;
  #colours = new Map<string, {field: string | null; theme: string; colours: Colours; main: boolean}>();

  constructor(
    url: UrlState,
    readonly themes: Themes,
    phone: boolean,
  ) {
    this.filters = new Signal(url.filters);
    this.selected = new Signal(url.selected ?? null);
    this.trails = new Signal(url.trails);
    this.colourBy = new Signal(url.colourBy);
    this.tab = new Signal<Tab | null>(url.tab ?? (url.selected ? "details" : phone ? null : "alerts"));
    this.layersOpen.set(!phone);
    this.#chosen = url.on ? new Set(url.on) : null;
  }

  /** The server described its layers. Those that the reader turned on or off stay so. */
  describe(layers: readonly Layer[]): void {
    this.#colours.clear();
    this.layers.set(layers);
    this.#refreshOn();
  }

  layer(name: string): Layer | undefined {
    return this.layers.value.find((layer) => layer.name === name);
  }

  /** The layers that the reader turned on; null while they are those that the server turns on. */
  get chosen(): ReadonlySet<string> | null {
    return this.#chosen;
  }

  toggleLayer(name: string): void {
    const on = new Set(this.on.value);
    if (!on.delete(name)) on.add(name);
    this.choose(on);
  }

  choose(on: ReadonlySet<string> | null): void {
    const usual = this.#usual();
    this.#chosen = on && (on.size !== usual.size || [...on].some((name) => !usual.has(name))) ? on : null;
    this.#refreshOn();
  }

  /** The colours of a layer as they are now: by the field that was chosen, for the theme that is on. */
  coloursOf(layer: Layer): {colours: Colours; main: boolean} {
    const field = this.colourBy.value[layer.name] ?? null;
    const theme = this.themes.theme.value;
    let known = this.#colours.get(layer.name);
    if (!known || known.field !== field || known.theme !== theme) {
      const all = colourings(layer);
      const chosen = Math.max(0, all.findIndex(({value}) => value?.field === field));
      known = {field, theme, colours: new Colours(all[chosen]!, theme), main: chosen === 0};
      this.#colours.set(layer.name, known);
    }
    return known;
  }

  #usual(): Set<string> {
    return new Set(this.layers.value.filter((layer) => layer.on).map((layer) => layer.name));
  }

  #refreshOn(): void {
    this.on.set(this.#chosen ?? this.#usual());
  }
}
