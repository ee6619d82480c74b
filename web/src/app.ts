import {AlertLog} from "./alerts";
import type {Api} from "./api";
import {Clock} from "./clock";
import type {Background, Message, Region, Subscription} from "./contract";
import {EventClock} from "./eventclock";
import {Known, passes} from "./filters";
import {Live} from "./live";
import type {Camera, LiveMap} from "./map/map";
import {outgrown, widened} from "./region";
import {standsAt} from "./rest";
import type {State} from "./state";
import type {Stats} from "./stats";
import {Store} from "./store";
import {TimeTravel} from "./timetravel";
import type {OpenTransport} from "./transport";
import {formatHash, type UrlState} from "./url";

export const FALLBACK: Camera = {lon: 24.94, lat: 60.2, zoom: 10.5};

/** What happens when: messages into the store, the reader's choices into subscriptions, all of it into the address. */
export class App {
  readonly store = new Store();
  readonly clock = new Clock();
  readonly known = new Known();
  readonly alerts = new AlertLog();
  readonly live: Live;
  readonly travel: TimeTravel;
  readonly eventClock: EventClock;
  home: Camera = FALLBACK;
  /** Alerts came, or were forgotten. */
  onAlerts: (fresh: {layer: string; key: string}[]) => void = () => {};
  onKnown: () => void = () => {};
  #region: Region | null = null;
  #writing: number | null = null;
  #asked = "";
  #background: Background | null = null;

  constructor(
    readonly state: State,
    readonly api: Api,
    readonly map: LiveMap,
    open: OpenTransport,
    private readonly arrived: UrlState,
    private readonly stats: Stats,
  ) {
    this.live = new Live({open, onMessage: (message) => this.receive(message), measure: (work) => stats.receive(work)});
    this.travel = new TimeTravel({
      now: () => this.clock.now(),
      fetch: (at, abort) => api.view(this.#wanted(), at, abort),
      show: ({layers}) => this.stats.receive(() => this.store.replace(layers)),
    });
    this.eventClock = new EventClock({now: () => this.clock.now(), past: () => this.travel.past?.at ?? null, speed: () => state.speed.value});
    this.live.link.watch((link) => state.link.set(link));
    this.store.subscribe((change) => {
      this.map.apply(change);
      const layer = state.layer(change.layer);
      if (layer && this.known.learn(layer, change.changed)) this.onKnown();
      if (layer?.show === "alerts" && !this.travel.past) this.#alert(change.layer, change.changed);
    });
    this.#follow();
  }

  async start(): Promise<void> {
    this.live.connect();
    const background = await this.api.background().catch((): Background => ({land: "land.json", lines: null, tiles: null, attribution: "", view: FALLBACK}));
    this.#background = background;
    this.home = background.view ?? FALLBACK;
    if (this.arrived.lon === undefined || this.arrived.zoom === undefined) this.map.flyTo(this.home.lon, this.home.lat, this.home.zoom);
    window.setInterval(() => {
      const status = this.state.status.value;
      // While nothing comes to the log nothing in it gets old: before the first status that is not known.
      if (status && !this.travel.past) this.store.expire(Math.min(this.clock.now(), standsAt(status)));
      if (this.forgetAlerts()) this.onAlerts([]);
    }, 1000);
    window.setInterval(() => this.eventClock.tick(), 250);
    this.state.mapped.watch((mapped) => mapped && void this.#drawLand(background));
    this.#lookForPlaces();
  }

  async #drawLand(background: Background): Promise<void> {
    // Names are drawn from an atlas that is made once: its typeface has to be there.
    await document.fonts.load('700 16px "Figtree Variable"').catch(() => []);
    const land = background.land ? await this.api.file(background.land).catch(() => null) : null;
    this.map.useBackground(background, land as GeoJSON.FeatureCollection | null);
    this.onBackground(background);
  }

  /** There is a map as soon as something has a place: a layer, what lies under the layers, or the address. */
  #lookForPlaces(): void {
    const {mapped, layers, link} = this.state;
    if (mapped.value || !this.#background) return;
    const {lines, tiles} = this.#background;
    const placed = this.arrived.lon !== undefined || lines !== null || tiles !== null || layers.value.some(({geometry}) => geometry.kind !== "none");
    if (placed || link.value.kind === "open") mapped.set(placed);
  }

  onBackground: (background: Background) => void = () => {};

  receive(message: Message): void {
    if ("now" in message) this.clock.heard(message.now);
    switch (message.type) {
      case "hello":
        this.state.speed.set(message.speed ?? 1);
        this.state.problem.set(null);
        this.state.describe(message.layers);
        this.#lookForPlaces();
        void this.#earlierAlerts();
        if (this.arrived.at !== undefined && !this.travel.past) this.travel.seek(this.arrived.at);
        delete this.arrived.at;
        break;
      case "snapshot":
        if (!this.travel.past) this.store.replace(message.layers);
        break;
      case "update":
        if (!this.travel.past) this.store.update(message.changed, message.gone, message.now);
        else for (const [layer, items] of Object.entries(message.changed ?? {})) this.#alert(layer, items);
        break;
      case "status":
        this.eventClock.heard(message);
        this.state.status.set(message);
        break;
      case "error":
        this.state.problem.set(message.message);
        break;
      case "pong":
        break;
    }
  }

  /** Changes of what the reader wants: what the server is asked for, what is drawn, what the address says. */
  #follow(): void {
    const {state, map, travel} = this;
    state.layers.subscribe((layers) => {
      map.describe(layers, (layer) => state.coloursOf(layer));
      this.#subscribe();
    });
    state.on.subscribe((on) => {
      map.show(on);
      this.store.drop((_, layer) => !this.#wanted().layers.includes(layer));
      this.#subscribe();
    });
    state.filters.subscribe((filters) => {
      this.store.drop((item, name) => {
        const layer = state.layer(name);
        return layer !== undefined && !passes(item, layer, filters);
      });
      this.#subscribe();
      // Those that happened while a filter kept them away were never sent.
      void this.#earlierAlerts();
    });
    state.selected.watch((selected) => map.select(selected));
    state.trails.watch((on) => map.showTrails(on));
    const recolour = (): void => {
      for (const layer of state.layers.value) {
        const {colours, main} = state.coloursOf(layer);
        map.recolour(layer.name, colours, main);
      }
    };
    state.colourBy.subscribe(recolour);
    state.themes.theme.subscribe((theme) => {
      map.useTheme(theme);
      recolour();
    });
    let settled: number | undefined;
    map.camera.subscribe(() => {
      window.clearTimeout(settled);
      settled = window.setTimeout(() => {
        const seen = map.region;
        if (seen && outgrown(this.#region, seen)) this.#subscribe();
      }, 250);
      this.#write();
    });
    let past = false;
    travel.moment.subscribe((moment) => {
      this.eventClock.tick();
      this.#write();
      if ((moment.kind === "past") === past) return;
      past = moment.kind === "past";
      this.#subscribe(true);
    });
    for (const signal of [state.on, state.filters, state.selected, state.trails, state.colourBy, state.tab, state.themes.theme]) {
      (signal as {subscribe(listener: () => void): unknown}).subscribe(() => this.#write());
    }
    window.addEventListener("online", () => this.live.retryNow());
    document.addEventListener("visibilitychange", () => !document.hidden && this.live.retryNow());
  }

  /** What is to be seen now. Alerts always come, since their list tells of all places and of layers to turn on. */
  #wanted(): Subscription {
    const {layers, on, filters} = this.state;
    const names = layers.value.filter(({name, show}) => on.value.has(name) || show === "alerts").map(({name}) => name);
    return {layers: names, region: this.#region, filters: filters.value};
  }

  #subscribe(again = false): void {
    if (this.state.layers.value.length === 0) return;
    const seen = this.map.region;
    this.#region = seen && widened(seen);
    const wanted = this.#wanted();
    const alerts = this.state.layers.value.filter(({show}) => show === "alerts").map(({name}) => name);
    const subscription = this.travel.past ? {...wanted, layers: alerts} : wanted;
    const asked = JSON.stringify(subscription);
    if (this.travel.past && !again) void this.travel.reload();
    if (asked === this.#asked && !again) return;
    this.#asked = asked;
    this.live.subscribe(subscription);
  }

  #alert(layer: string, items: readonly Parameters<AlertLog["add"]>[1][]): void {
    const fresh = items.filter((item) => this.alerts.add(layer, item)).map(({k}) => ({layer, key: k}));
    if (fresh.length > 0) this.onAlerts(fresh);
  }

  async #earlierAlerts(): Promise<void> {
    const {alerts} = await this.api.alerts().catch(() => ({alerts: []}));
    for (const {layer, ...item} of alerts) this.alerts.add(layer, item);
    this.forgetAlerts();
    this.onAlerts([]);
  }

  /** Those of more than an hour ago, in event time: while that is not known, all of a replay would be. */
  forgetAlerts(): boolean {
    return this.eventClock.known && this.alerts.trim(this.eventClock.live);
  }

  #write(): void {
    this.#writing ??= window.setTimeout(() => {
      this.#writing = null;
      history.replaceState(null, "", formatHash(this.urlState()));
    }, 300);
  }

  urlState(): UrlState {
    const {state, map, travel} = this;
    const {lon, lat, zoom} = map.camera.value;
    return {
      // What an address came with stays in it, also before it is known whether there is a map.
      ...((state.mapped.value || this.arrived.lon !== undefined) && {lon, lat, zoom}),
      ...(state.chosen && {on: [...state.chosen]}),
      filters: state.filters.value,
      ...(state.selected.value && {selected: state.selected.value}),
      ...(state.themes.chosen && {theme: state.themes.chosen}),
      ...(travel.past && {at: travel.past.at}),
      ...(state.tab.value && {tab: state.tab.value}),
      trails: state.trails.value,
      colourBy: state.colourBy.value,
    };
  }
}
