import {along, css, parseColour, type Rgb} from "./colour";
import type {Colouring, Item, Layer} from "./contract";
import {formatNumber} from "./format";
import type {Theme} from "./theme";

/** Ramps for descriptions that name no colours. Much is dark on paper and bright at night. */
const RAMPS: Record<Theme, {sequential: string[]; diverging: string[]}> = {
  light: {
    sequential: ["#cfe6dd", "#7cc3b5", "#2f8f97", "#1f5b80", "#1c2f5c"],
    diverging: ["#22608f", "#8fb8cc", "#cfc9bd", "#eca269", "#b8382a"],
  },
  dark: {
    sequential: ["#17414f", "#1f7377", "#4fae94", "#b5d98b", "#fbf3b4"],
    diverging: ["#6fb6ea", "#3f6f8f", "#3a4149", "#b06a3c", "#ff8a66"],
  },
};
const CATEGORIES: Record<Theme, string[]> = {
  light: ["#1f6f8b", "#2e8b57", "#8a4fa3", "#c9622b", "#b3445a", "#6b7a2c", "#4b5fa8", "#7a5c43"],
  dark: ["#5fb8d6", "#6fce95", "#c496dc", "#f09a62", "#f0879c", "#bfd06a", "#95a7f0", "#cfa98a"],
};

/** Colours that are told apart, for things that have none of their own. */
export function categoryColours(theme: Theme): readonly string[] {
  return CATEGORIES[theme];
}

const UNKNOWN: Record<Theme, string> = {light: "#8b8f8c", dark: "#8f9a9e"};
const STEPS = 256;

export interface LegendEntry {
  label: string;
  colour: string;
}

/** The colours of one layer: from a value to a colour, and what to say of that in a legend. */
export class Colours {
  readonly #table = new Uint8ClampedArray(STEPS * 4);
  readonly #categories = new Map<string, Rgb>();
  readonly #unknown: Rgb;
  readonly #free: Rgb[];
  readonly #domain: number[];
  readonly kind: "sequential" | "diverging" | "categorical";
  readonly field: string | null;

  constructor(
    readonly colouring: Colouring,
    readonly theme: Theme,
  ) {
    const scale = colouring.scale ?? {kind: "sequential" as const};
    this.kind = scale.kind;
    this.field = colouring.value?.field ?? null;
    this.#unknown = parseColour(UNKNOWN[theme]);
    const named = Object.values(scale.categories ?? {}).map((colour) => colour.toLowerCase());
    this.#free = CATEGORIES[theme].filter((colour) => !named.includes(colour)).map(parseColour);
    for (const [name, colour] of Object.entries(scale.categories ?? {})) this.#categories.set(name, readable(colour, theme));
    this.#domain = domainOf(scale.domain, scale.kind);
    const ramp = scale.kind === "diverging" ? RAMPS[theme].diverging : RAMPS[theme].sequential;
    const stops = (scale.colours && scale.colours.length > 0 ? scale.colours : ramp).map(parseColour);
    for (let step = 0; step < STEPS; step++) {
      const amount = step / (STEPS - 1);
      this.#table.set([...along(stops, amount), Math.round(255 * opacity(amount, scale.kind))], step * 4);
    }
  }

  /** What of an item is coloured. */
  valueOf(item: Item, main: boolean): unknown {
    return main || this.field === null ? item.v : (item.f[this.field] ?? null);
  }

  /** Writes red, green, blue and opacity of a value, each 0…255, at `at`. */
  write(value: unknown, target: Uint8ClampedArray, at: number): void {
    if (this.kind === "categorical") {
      target.set(this.#category(value), at);
      target[at + 3] = 255;
    } else if (typeof value !== "number" || Number.isNaN(value)) {
      target.set(this.#unknown, at);
      target[at + 3] = value === null || value === undefined ? 120 : 255;
    } else {
      const step = Math.round(this.amount(value) * (STEPS - 1)) * 4;
      for (let i = 0; i < 4; i++) target[at + i] = this.#table[step + i]!;
    }
  }

  /** 0…1: where in the domain a value is. */
  amount(value: number): number {
    const [low, high] = [this.#domain[0]!, this.#domain.at(-1)!];
    if (this.#domain.length === 3) {
      const mid = this.#domain[1]!;
      return value < mid ? clamp((value - low) / (mid - low || 1)) / 2 : 0.5 + clamp((value - mid) / (high - mid || 1)) / 2;
    }
    return clamp((value - low) / (high - low || 1));
  }

  /** As CSS, without its opacity. */
  css(value: unknown): string {
    const out = new Uint8ClampedArray(4);
    this.write(value, out, 0);
    return css([out[0]!, out[1]!, out[2]!]);
  }

  /** The ramp as a CSS gradient, with the numbers that stand at its ends (and middle). */
  get gradient(): {background: string; marks: string[]} {
    const stops = Array.from({length: 9}, (_, i) => {
      const at = Math.round((i / 8) * (STEPS - 1)) * 4;
      return css([this.#table[at]!, this.#table[at + 1]!, this.#table[at + 2]!]);
    });
    const low = this.#domain[0]!;
    const high = this.#domain.at(-1)!;
    const half = (low + high) / 2;
    // Half a vehicle is nothing to count by.
    const mid = this.#domain.length === 3 ? this.#domain[1]! : half > 10 ? Math.round(half) : half;
    return {
      background: `linear-gradient(90deg, ${stops.join(", ")})`,
      marks: [formatNumber(low), formatNumber(mid), [`${formatNumber(high)}+`, this.colouring.value?.unit].filter(Boolean).join(" ")],
    };
  }

  /** The categories that are described or were met. */
  get entries(): LegendEntry[] {
    return [...this.#categories].map(([label, rgb]) => ({label, colour: css(rgb)}));
  }

  #category(value: unknown): Rgb {
    if (value === null || value === undefined || value === "") return this.#unknown;
    const name = String(value);
    let rgb = this.#categories.get(name);
    if (!rgb) this.#categories.set(name, (rgb = this.#free.shift() ?? this.#unknown));
    return rgb;
  }
}

/** The ways in which a layer can be coloured, the usual one first. */
export function colourings(layer: Layer): Colouring[] {
  return [{value: layer.value, scale: layer.scale}, ...(layer.alternatives ?? [])];
}

/** A colour that a description gave for paper, made lighter where it would drown in the dark. */
function readable(colour: string, theme: Theme): Rgb {
  const rgb = parseColour(colour);
  const lightness = (rgb[0] * 299 + rgb[1] * 587 + rgb[2] * 114) / 255_000;
  return theme === "dark" && lightness < 0.45 ? along([rgb, [255, 255, 255]], (0.45 - lightness) * 0.9) : rgb;
}

function domainOf(domain: number[] | null | undefined, kind: string): number[] {
  if (domain && domain.length >= 2 && domain.every(Number.isFinite)) {
    return kind === "diverging" && domain.length === 2 ? [domain[0]!, (domain[0]! + domain[1]!) / 2, domain[1]!] : domain.slice(0, 3);
  }
  return kind === "diverging" ? [-1, 0, 1] : [0, 1];
}

/** Little is faint, so that much stands out and the map shows through. */
function opacity(amount: number, kind: string): number {
  return kind === "diverging" ? 0.7 + 0.2 * Math.abs(amount - 0.5) * 2 : 0.42 + 0.48 * amount ** 0.7;
}

function clamp(value: number): number {
  return Math.min(1, Math.max(0, value));
}
