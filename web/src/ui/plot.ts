import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import {formatNumber, formatTime} from "../format";
import {h} from "./dom";

/** Seconds. */
const SHORTEST = 60;

export interface PlotPoint {
  t: number;
  v: number;
  provisional?: boolean;
}

export interface PlotOptions {
  label: string;
  unit?: string;
  height?: number;
  /** Dots of many keys instead of the line of one. */
  dots?: boolean;
}

/** A small plot over time, in the colours of the page, which also says in words what it shows. */
export class Plot {
  readonly root = h("div", {className: "plot", role: "img", data: {test: "plot"}});
  #plot: uPlot | null = null;
  #points: PlotPoint[] = [];
  #options: PlotOptions = {label: ""};
  #resize = new ResizeObserver(([entry]) => {
    const width = Math.floor(entry!.contentRect.width);
    if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({width, height: this.#height});
    else if (!this.#plot && width > 0) this.#make();
  });

  constructor() {
    this.#resize.observe(this.root);
  }

  show(points: PlotPoint[], options: PlotOptions): void {
    const sameKind = options.label === this.#options.label && options.dots === this.#options.dots;
    this.#points = points;
    this.#options = options;
    this.root.setAttribute("aria-label", describe(points, options));
    if (this.#plot && sameKind) this.#plot.setData(this.#data());
    else this.#make();
  }

  /** Draws anew, in the colours of another theme. */
  restyle(): void {
    this.#make();
  }

  get #height(): number {
    return this.#options.height ?? 130;
  }

  #data(): uPlot.AlignedData {
    return [
      this.#points.map(({t}) => t / 1000),
      this.#points.map(({v, provisional}) => (provisional ? null : v)),
      this.#points.map(({v, provisional}) => (provisional ? v : null)),
    ];
  }

  #make(): void {
    this.#plot?.destroy();
    this.#plot = null;
    const width = Math.floor(this.root.clientWidth);
    if (width === 0) return;
    const style = getComputedStyle(this.root);
    const [accent, ink, grid, paper] = ["--accent", "--muted", "--hairline", "--panel-solid"].map((name) => style.getPropertyValue(name).trim()) as [string, string, string, string];
    const axis = {stroke: ink, font: `11px ${style.fontFamily}`, ticks: {show: false}, grid: {stroke: grid, width: 1}};
    const {dots = false, label} = this.#options;
    this.#plot = new uPlot(
      {
        width,
        height: this.#height,
        // Half of the last time stands to the right of its mark.
        padding: [8, 24, 0, 0],
        legend: {show: false},
        cursor: {drag: {x: false, y: false}, points: {size: 7}, y: false},
        scales: {x: {range: () => timeRange(this.#points)}, y: {range: (_, low, high) => valueRange(low, high)}},
        axes: [
          {...axis, size: 22, space: 64, values: (_, times) => times.map((time) => shortTime(time * 1000, times.at(-1)! - times[0]!)), grid: {show: false}},
          {...axis, size: 42, space: 30, values: (_, values) => values.map(formatNumber)},
        ],
        series: [
          {},
          {
            label,
            stroke: accent,
            width: dots ? 0 : 1.75,
            spanGaps: true,
            ...(dots ? {paths: () => null} : {fill: `color-mix(in srgb, ${accent} 14%, transparent)`}),
            points: {show: dots || this.#points.length < 40, size: dots ? 4 : 5, fill: accent, stroke: accent},
          },
          {label: `${label}, provisional`, stroke: accent, paths: () => null, points: {show: true, size: 6, fill: paper, stroke: accent, width: 1.25}},
        ],
        hooks: {
          setCursor: [(plot) => this.#tell(plot)],
          setScale: [({scales: {x}}) => (this.root.dataset["seconds"] = String(Math.round(x!.max! - x!.min!)))],
        },
      },
      this.#data(),
      this.root,
    );
    this.#plot.root.append(h("div", {className: "plot-tip", hidden: true}));
  }

  #tell(plot: uPlot): void {
    const tip = plot.root.querySelector<HTMLElement>(".plot-tip");
    if (!tip) return;
    const point = plot.cursor.idx == null ? undefined : this.#points[plot.cursor.idx];
    tip.hidden = !point;
    if (point) tip.textContent = `${formatTime(point.t)}  ${formatNumber(point.v)} ${this.#options.unit ?? ""}`;
  }
}

/** Seconds only where minutes do not tell two marks apart. */
export function shortTime(ms: number, span: number): string {
  return span < 150 ? formatTime(ms) : formatTime(ms).slice(0, 5);
}

/**
 * The time of the points, in seconds; at least a minute, with them in its middle: a single moment has no length to be
 * drawn on, and uPlot would make it a day.
 */
export function timeRange(points: readonly PlotPoint[]): [number, number] {
  const [first, last] = [points[0], points.at(-1)].map((point) => (point?.t ?? Date.now()) / 1000) as [number, number];
  const missing = Math.max(0, SHORTEST - (last - first)) / 2;
  return [first - missing, last + missing];
}

/** Room above and below, also when all values are the same; zero is a good place to start for what is never negative. */
export function valueRange(low: number | null, high: number | null): [number, number] {
  const [a, b] = [low ?? 0, high ?? 1];
  if (a === b) {
    const room = Math.max(1, Math.abs(a) * 0.1);
    return [a >= 0 ? Math.max(0, a - room) : a - room, a + room];
  }
  const bottom = a >= 0 && a < b * 0.6 ? 0 : a - (b - a) * 0.12;
  return [bottom, b + (b - bottom) * 0.12];
}

export function describe(points: readonly PlotPoint[], {label, unit = ""}: PlotOptions): string {
  if (points.length === 0) return `${label}: nothing yet`;
  const values = points.map(({v}) => v);
  const last = points.at(-1)!;
  const span = [Math.min(...values), Math.max(...values)].map(formatNumber).join(" to ");
  return `${label}, ${span} ${unit} from ${formatTime(points[0]!.t)} to ${formatTime(last.t)}; last ${formatNumber(last.v)} ${unit}`.replace(/ +/g, " ");
}
