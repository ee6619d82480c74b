import {FlyToInterpolator, MapView, type Layer as DeckLayer, type MapViewState, type WebMercatorViewport} from "@deck.gl/core";
import {PathLayer} from "@deck.gl/layers";
import type {Background, Layer, Region} from "../contract";
import {outgrown, widened} from "../region";
import type {Colours} from "../scale";
import {Signal} from "../signal";
import type {Stats} from "../stats";
import type {Change} from "../store";
import type {Theme} from "../theme";
import type {Selected} from "../url";
import {MapBackground} from "./background";
import {deckLayerOf, drawingOf, type Drawing} from "./drawing";
import {shapeOf} from "./cells";
import type {Ticker} from "./gpu";
import {PALETTES, unit} from "./palette";
import {pickArrow, pickCell, pickPoint} from "./pick";
import {TimedDeck} from "./timeddeck";
import {Trails, TrailsLayer} from "./trails";

export interface Camera {
  lon: number;
  lat: number;
  zoom: number;
}

/** What is under the pointer, in pixels of the map. */
export interface Pointed extends Selected {
  x: number;
  y: number;
}

export interface LiveMapOptions {
  parent: HTMLElement;
  camera: Camera;
  theme: Theme;
  stats: Stats;
  reducedMotion: boolean;
}

const ORDER: Drawing["kind"][] = ["cells", "arrows", "markers", "pulses"];

/** The map: shows the changes that it is told of, and draws only while something moves. */
export class LiveMap {
  readonly camera: Signal<Camera>;
  readonly background = new MapBackground();
  #deck: TimedDeck;
  #drawings = new Map<string, Drawing>();
  #order: string[] = [];
  #on: ReadonlySet<string> = new Set();
  #theme: Theme;
  #ticker: Ticker;
  #trails = new Trails();
  #trailsOn = false;
  /** None or one; the same object until it changes, lest it is uploaded anew. */
  #path: [number, number][][] = [];
  #selected: Selected | null = null;
  #hovered: Selected | null = null;
  #frame: number | null = null;
  #stale = true;
  #drawn = new Map<string, {version: number; nesting: number; layer: DeckLayer}>();
  #backdrop: {key: string; under: DeckLayer[]; names: DeckLayer | null} | null = null;
  #around: Region | null = null;
  #animating = false;

  constructor(private readonly options: LiveMapOptions) {
    this.#theme = options.theme;
    this.#ticker = {now: performance.now(), still: options.reducedMotion};
    this.camera = new Signal(options.camera);
    this.#deck = new TimedDeck(
      {
        parent: options.parent as HTMLDivElement,
        views: new MapView({id: "map", repeat: false}),
        initialViewState: this.#viewState(options.camera),
        controller: {
          dragRotate: false,
          touchRotate: false,
          scrollZoom: {smooth: true, speed: 0.012},
          inertia: options.reducedMotion ? false : 320,
          // Arrows move; the page's own keys zoom, whatever has the focus; north stays up.
          keyboard: {moveSpeed: 80, zoomSpeed: 1, rotateSpeedX: 0, rotateSpeedY: 0},
        },
        layers: [],
        pickingRadius: 0,
        useDevicePixels: pixelRatio(),
        getCursor: ({isDragging}) => (isDragging ? "grabbing" : this.#hovered ? "pointer" : "grab"),
        onViewStateChange: ({viewState}) => {
          const {longitude, latitude, zoom} = viewState as MapViewState;
          this.camera.set({lon: longitude, lat: latitude, zoom});
          this.#wake(true);
        },
        onResize: () => {
          this.#deck.setProps({useDevicePixels: pixelRatio()});
          this.#wake(true);
        },
        onLoad: () => {
          this.#makeReachable();
          this.#wake(true);
        },
      },
      options.stats,
    );
  }

  /** The layers that there are, with their colours, from the server's description. */
  describe(layers: readonly Layer[], coloursOf: (layer: Layer) => {colours: Colours; main: boolean}): void {
    const known = this.#drawings;
    this.#drawings = new Map();
    for (const layer of layers) {
      const {colours, main} = coloursOf(layer);
      const drawing = known.get(layer.name) ?? drawingOf(layer, colours, main);
      if (!drawing) continue;
      if (known.has(layer.name)) drawing.instances.recolour(colours, main, performance.now());
      this.#drawings.set(layer.name, drawing);
      if (drawing.kind === "markers") {
        drawing.instances.gliding = !this.options.reducedMotion;
        drawing.instances.onTravel = (segment) => {
          if (!this.#trailsOn) return;
          const at = segment.row * 4;
          this.#trails.add(segment, drawing.instances.columns.get("getColourTo").subarray(at, at + 3));
        };
      }
    }
    this.#order = [...this.#drawings.keys()].sort((a, b) => ORDER.indexOf(this.#drawings.get(a)!.kind) - ORDER.indexOf(this.#drawings.get(b)!.kind));
    this.#wake(true);
  }

  apply(change: Change): void {
    this.#drawings.get(change.layer)?.instances.apply(change, performance.now());
    if (this.#on.has(change.layer)) this.#wake();
  }

  show(on: ReadonlySet<string>): void {
    this.#on = on;
    this.#wake(true);
  }

  recolour(layer: string, colours: Colours, main: boolean): void {
    this.#drawings.get(layer)?.instances.recolour(colours, main, performance.now());
    this.#wake();
  }

  useTheme(theme: Theme): void {
    this.#theme = theme;
    this.#drawn.clear();
    this.#wake(true);
  }

  useBackground(background: Pick<Background, "lines" | "tiles">, land: GeoJSON.FeatureCollection | null): void {
    this.background.useBackground(background);
    if (land) this.background.useLand(land);
    this.#backdrop = null;
    this.#wake(true);
  }

  showTrails(on: boolean): void {
    this.#trailsOn = on;
    if (!on) this.#trails.clear();
    this.#wake(true);
  }

  /** The way that the selected thing went. */
  showPath(path: [number, number][]): void {
    this.#path = path.length > 1 ? [path] : [];
    this.#wake(true);
  }

  select(selected: Selected | null): void {
    this.#emphasise(this.#selected, 0);
    this.#selected = selected;
    this.#emphasise(this.#hovered, 0.5);
    this.#emphasise(selected, 1);
  }

  hover(hovered: Selected | null): void {
    if (hovered?.layer === this.#hovered?.layer && hovered?.key === this.#hovered?.key) return;
    this.#emphasise(this.#hovered, 0);
    this.#hovered = hovered;
    this.#emphasise(hovered, 0.5);
    this.#emphasise(this.#selected, 1);
  }

  /** What is drawn topmost at a pixel. */
  pick(x: number, y: number, within: number): Pointed | null {
    const viewport = this.#viewport;
    if (!viewport) return null;
    const now = performance.now();
    const project = (place: [number, number]): number[] => viewport.project(place);
    const [lon, lat] = viewport.unproject([x, y]) as [number, number];
    for (const name of this.#order.toReversed()) {
      if (!this.#on.has(name)) continue;
      const drawing = this.#drawings.get(name)!;
      const key =
        drawing.kind === "cells"
          ? pickCell(drawing.instances, lon, lat)
          : drawing.kind === "arrows"
            ? pickArrow(drawing.instances, project, x, y, within / 2)
            : pickPoint(drawing.instances, project, x, y, within, now);
      if (key !== null) return {layer: name, key, x, y};
    }
    return null;
  }

  /** Where an item is seen. */
  placeOf({layer, key}: Selected): [lon: number, lat: number] | null {
    const drawing = this.#drawings.get(layer);
    const row = drawing?.instances.row(key);
    if (!drawing || row === undefined) return null;
    if (drawing.kind === "markers" || drawing.kind === "pulses") return drawing.instances.seenAt(row, performance.now());
    const item = drawing.instances.items[row]!;
    const shape = shapeOf(item.c ?? item.e?.[0] ?? "");
    return shape && [shape.lon, shape.lat];
  }

  flyTo(lon: number, lat: number, zoom = Math.max(this.camera.value.zoom, 13)): void {
    const target = this.#viewState({lon, lat, zoom});
    const motion = this.options.reducedMotion ? {} : {transitionDuration: 1100, transitionInterpolator: new FlyToInterpolator({speed: 1.6})};
    this.#deck.setProps({initialViewState: {...target, ...motion}});
    if (this.options.reducedMotion) this.camera.set({lon, lat, zoom});
    this.#wake(true);
  }

  zoomBy(by: number): void {
    const {lon, lat, zoom} = this.camera.value;
    const motion = this.options.reducedMotion ? {} : {transitionDuration: 220};
    this.#deck.setProps({initialViewState: {...this.#viewState({lon, lat, zoom: Math.min(18, Math.max(5, zoom + by))}), ...motion}});
    this.#wake(true);
  }

  /** West, south, east, north of what is seen; null before the first frame. */
  get region(): Region | null {
    return (this.#viewport?.getBounds()) ?? null;
  }

  get metresPerPixel(): number {
    const {lat, zoom} = this.camera.value;
    return (40_075_016.686 * Math.cos((lat * Math.PI) / 180)) / (512 * 2 ** zoom);
  }

  /** How many items of each layer are drawn, and do not fade away. */
  counts(): Record<string, number> {
    return Object.fromEntries(
      [...this.#drawings].map(([name, {instances}]) => {
        let count = 0;
        for (let row = 0; row < instances.size; row++) if (!instances.dying(row)) count += 1;
        return [name, this.#on.has(name) ? count : 0];
      }),
    );
  }

  get #viewport(): WebMercatorViewport | null {
    return this.#deck.isInitialized ? ((this.#deck.getViewports()[0] as WebMercatorViewport | undefined) ?? null) : null;
  }

  #viewState({lon, lat, zoom}: Camera): MapViewState {
    return {longitude: lon, latitude: lat, zoom, minZoom: 4, maxZoom: 18, pitch: 0, bearing: 0, maxPitch: 0};
  }

  /** The canvas takes part in the order of focus where it stands, and says what it is. */
  #makeReachable(): void {
    const {parent} = this.options;
    for (const element of [parent, ...parent.querySelectorAll<HTMLElement>("[tabindex]")]) element.removeAttribute("tabindex");
    const canvas = parent.querySelector("canvas");
    if (!canvas) return;
    canvas.tabIndex = 0;
    canvas.style.outline = "";
    canvas.setAttribute("role", "application");
    canvas.setAttribute("aria-label", "Map of results: arrows move it, plus and minus zoom. Tables list the same results.");
  }

  #emphasise(what: Selected | null, amount: number): void {
    if (!what) return;
    this.#drawings.get(what.layer)?.instances.emphasise(what.key, amount);
    this.#wake();
  }

  #wake(stale = false): void {
    this.#stale ||= stale;
    this.#frame ??= requestAnimationFrame(() => this.options.stats.prepare(() => this.#tick()));
  }

  #tick(): void {
    this.#frame = null;
    const now = (this.#ticker.now = performance.now());
    let moving = this.#trailsOn && !this.#trails.empty;
    let sweeping = false;
    let changed = this.#stale;
    for (const [name, drawing] of this.#drawings) {
      const {instances} = drawing;
      if ((instances.sweepAt ?? Infinity) <= now) instances.sweep(now);
      if (!this.#on.has(name)) continue;
      sweeping ||= instances.sweepAt !== null;
      moving ||= instances.busyUntil > now || (drawing.kind === "pulses" && instances.size > 0 && !this.#ticker.still);
      changed ||= this.#drawn.get(name)?.version !== instances.version;
    }
    this.#stale = false;
    if (changed) this.#deck.setProps({layers: this.#layers(now)});
    if (moving !== this.#animating) {
      this.#animating = moving;
      this.#deck.setProps({_animate: moving});
      // What moved has come to rest: that is drawn once more.
      if (!moving) this.#deck.redraw("at rest");
    }
    if (moving || sweeping) this.#wake();
  }

  #layers(now: number): DeckLayer[] {
    const {zoom} = this.camera.value;
    const step = Math.round(zoom * 4) / 4;
    const seen = this.region;
    if (seen && outgrown(this.#around, seen)) this.#around = widened(seen);
    const backdropKey = `${this.#theme} ${step} ${this.#around?.join()} ${this.background.tiled ? seen?.map((x) => x.toFixed(3)).join() : ""}`;
    if (this.#backdrop?.key !== backdropKey) {
      this.#backdrop = {
        key: backdropKey,
        under: this.background.layers(this.#theme, step, {seen, around: this.#around}),
        names: this.background.names(this.#theme, step),
      };
    }
    const palette = PALETTES[this.#theme];
    const props = {ticker: this.#ticker, paper: unit(palette.paper), ink: unit(palette.ink), pickable: false};
    const groups: Record<Drawing["kind"], DeckLayer[]> = {cells: [], arrows: [], markers: [], pulses: []};
    for (const name of this.#order) {
      if (!this.#on.has(name)) continue;
      const drawing = this.#drawings.get(name)!;
      const group = groups[drawing.kind];
      const nesting = group.length;
      const {version} = drawing.instances;
      let drawn = this.#drawn.get(name);
      if (!drawn || drawn.version !== version || drawn.nesting !== nesting) {
        drawn = {version, nesting, layer: deckLayerOf(name, drawing, props, nesting)};
        this.#drawn.set(name, drawn);
      }
      group.push(drawn.layer);
    }
    for (const name of this.#drawn.keys()) if (!this.#on.has(name)) this.#drawn.delete(name);
    const trails = this.#trailsOn
      ? this.#trails.chunks(now).map(({id, data}) => new TrailsLayer({...props, id: `trail-${id}`, data, base: this.#trails.base}))
      : [];
    const path = new PathLayer<[number, number][]>({
      id: "path",
      data: this.#path,
      getPath: (points) => points,
      getColor: [...palette.ink, 190],
      getWidth: 2,
      widthUnits: "pixels",
      jointRounded: true,
      capRounded: true,
      updateTriggers: {getColor: this.#theme},
    });
    const names = this.#backdrop.names ? [this.#backdrop.names] : [];
    return [...this.#backdrop.under, ...groups.cells, ...groups.arrows, ...trails, path, ...groups.markers, ...names, ...groups.pulses];
  }
}

/** Pixels beyond two for each of CSS cost much and are not seen. */
function pixelRatio(): number {
  return Math.min(2, window.devicePixelRatio || 1);
}
