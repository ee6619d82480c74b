import uPlot from "uplot";
import {formatNumber, formatTime} from "../format";
import type {Aligned} from "../series";
import {h} from "./dom";
import {shortTime, timeRange, valueRange} from "./plot";

export interface LinePlotOptions {
  label: string;
  unit?: string;
  /** What the lines are called, and their colours. */
  names: string[];
  colours: string[];
  /** Dots that no line leads through. */
  scattered: boolean;
}

const HEIGHT = 168;

/** Lines of several keys over time, which also says in words what it shows. */
export class LinePlot {
  readonly root = h("div", {className: "plot", role: "img", data: {test: "line-plot"}});
  #plot: uPlot | null = null;
  #made = "";
  #data: Aligned = {times: [], values: []};
  #options: LinePlotOptions = {label: "", names: [], colours: [], scattered: false};

  constructor() {
    new ResizeObserver(([entry]) => {
      const width = Math.floor(entry!.contentRect.width);
      if (this.#plot && width > 0 && width !== this.#plot.width) this.#plot.setSize({width, height: HEIGHT});
      else if (!this.#plot && width > 0) this.#make();
    }).observe(this.root);
  }

  show(data: Aligned, options: LinePlotOptions): void {
    this.#data = data;
    this.#options = options;
    this.root.setAttribute("aria-label", describeLines(data, options));
    if (this.#plot && this.#made === JSON.stringify(options)) this.#plot.setData(this.#aligned());
    else this.#make();
  }

  /** Draws anew, in the colours of another theme. */
  restyle(): void {
    this.#make();
  }

  #aligned(): uPlot.AlignedData {
    return [this.#data.times.map((t) => t / 1000), ...this.#data.values];
  }

  #make(): void {
    this.#plot?.destroy();
    this.#plot = null;
    const width = Math.floor(this.root.clientWidth);
    if (width === 0) return;
    const style = getComputedStyle(this.root);
    const [ink, grid] = ["--muted", "--hairline"].map((name) => style.getPropertyValue(name).trim()) as [string, string];
    const axis = {stroke: ink, font: `11px ${style.fontFamily}`, ticks: {show: false}, grid: {stroke: grid, width: 1}};
    const {names, colours, scattered} = this.#options;
    this.#made = JSON.stringify(this.#options);
    this.#plot = new uPlot(
      {
        width,
        height: HEIGHT,
        padding: [8, 24, 0, 0],
        legend: {show: false},
        cursor: {drag: {x: false, y: false}, points: {size: 7}, y: false},
        scales: {
          x: {range: () => timeRange(this.#data.times.map((t) => ({t, v: 0})))},
          y: {range: (_, low, high) => valueRange(low, high)},
        },
        axes: [
          {...axis, size: 22, space: 64, values: (_, times) => times.map((time) => shortTime(time * 1000, times.at(-1)! - times[0]!)), grid: {show: false}},
          {...axis, size: 48, space: 30, values: (_, values) => values.map(formatNumber)},
        ],
        series: [
          {},
          ...names.map((label, index) => ({
            label,
            stroke: colours[index]!,
            width: scattered ? 0 : 1.75,
            spanGaps: true,
            ...(scattered && {paths: () => null}),
            points: {show: () => scattered || this.#data.times.length < 3, size: 6, fill: colours[index]!, stroke: colours[index]!},
          })),
        ],
        hooks: {setCursor: [(plot) => this.#tell(plot)]},
      },
      this.#aligned(),
      this.root,
    );
    this.#plot.root.append(h("div", {className: "plot-tip", hidden: true}));
  }

  #tell(plot: uPlot): void {
    const tip = plot.root.querySelector<HTMLElement>(".plot-tip");
    if (!tip) return;
    const at = plot.cursor.idx;
    const t = at == null ? undefined : this.#data.times[at];
    tip.hidden = t === undefined;
    if (at == null || t === undefined) return;
    const lines = this.#data.values.flatMap((values, index) => {
      const value = values[at];
      return value == null ? [] : [`${this.#options.names[index]} ${formatNumber(value)}`];
    });
    tip.textContent = `${formatTime(t)}  ${lines.join("  ")}`;
  }
}

/** "revenue in €: DE 1,200; FI 300; from 12:00:00 to 12:40:00" */
export function describeLines({times, values}: Aligned, {label, unit, names, scattered}: LinePlotOptions): string {
  const what = unit ? `${label} in ${unit}` : label;
  if (times.length === 0) return `${what}: nothing yet`;
  const span = `from ${formatTime(times[0]!)} to ${formatTime(times.at(-1)!)}`;
  if (scattered) return `${what}: ${times.length} ${times.length === 1 ? "result" : "results"} ${span}`;
  const last = names.map((name, index) => `${name} ${formatNumber(values[index]!.findLast((value) => value !== null) ?? NaN)}`);
  return `${what}: ${last.join("; ")}; ${span}`;
}
