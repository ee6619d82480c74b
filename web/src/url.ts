import type {Filters} from "./contract";
import {joinValues, splitValues} from "./filters";
import type {Theme} from "./theme";

export const TABS = ["details", "alerts", "tables", "status"] as const;
export type Tab = (typeof TABS)[number];

export interface Selected {
  layer: string;
  key: string;
  /** The event time of one result of this key, such as an alert; without it, whichever is shown. */
  t?: number;
}

/** The state of the view that stands in the address, so that it can be shared and comes back after a reload. */
export interface UrlState {
  lon?: number;
  lat?: number;
  zoom?: number;
  /** The layers that are on; left out while they are those that the server turns on. */
  on?: string[];
  filters: Filters;
  selected?: Selected;
  theme?: Theme;
  /** The moment that is shown; left out while the page is live. */
  at?: number;
  tab?: Tab;
  trails: boolean;
  /** Layer → field that it is coloured by, where that is not the usual one. */
  colourBy: Record<string, string>;
}

/** Reads the part of an address after `#`; what makes no sense is left out. */
export function parseHash(hash: string): UrlState {
  const params = new URLSearchParams(hash.replace(/^#/, ""));
  const state: UrlState = {filters: {}, trails: params.get("trails") === "1", colourBy: {}};
  const centre = params.get("c")?.split(",").map(Number);
  if (centre?.length === 2 && Math.abs(centre[0]!) <= 180 && Math.abs(centre[1]!) <= 85) [state.lon, state.lat] = centre;
  const zoom = Number(params.get("z") || NaN);
  if (zoom >= 0 && zoom <= 24) state.zoom = zoom;
  const on = params.get("on");
  if (on !== null) state.on = on.split(",").filter(Boolean);
  const selected = params.get("sel");
  const colon = selected?.indexOf(":") ?? -1;
  if (selected && colon > 0) state.selected = {layer: selected.slice(0, colon), key: selected.slice(colon + 1)};
  const of = Number(params.get("of") || NaN);
  if (state.selected && Number.isSafeInteger(of) && of > 0) state.selected.t = of;
  const theme = params.get("theme");
  if (theme === "light" || theme === "dark") state.theme = theme;
  const at = Number(params.get("t") || NaN);
  if (Number.isSafeInteger(at) && at > 0) state.at = at;
  const tab = TABS.find((name) => name === params.get("tab"));
  if (tab) state.tab = tab;
  for (const [name, value] of params) {
    if (name.startsWith("f.") && value) state.filters[name.slice(2)] = splitValues(value).filter(Boolean);
    if (name.startsWith("by.") && value) state.colourBy[name.slice(3)] = value;
  }
  return state;
}

export function formatHash(state: UrlState): string {
  const parts: string[] = [];
  const add = (name: string, value: string): number => parts.push(`${escape(name)}=${escape(value)}`);
  if (state.lon !== undefined && state.lat !== undefined) add("c", `${state.lon.toFixed(5)},${state.lat.toFixed(5)}`);
  if (state.zoom !== undefined) add("z", state.zoom.toFixed(2));
  if (state.on) add("on", state.on.join(","));
  for (const [field, values] of Object.entries(state.filters)) if (values.length > 0) add(`f.${field}`, joinValues(values));
  for (const [layer, field] of Object.entries(state.colourBy)) add(`by.${layer}`, field);
  if (state.trails) add("trails", "1");
  if (state.selected) add("sel", `${state.selected.layer}:${state.selected.key}`);
  if (state.selected?.t !== undefined) add("of", String(state.selected.t));
  if (state.theme) add("theme", state.theme);
  if (state.at !== undefined) add("t", String(Math.round(state.at)));
  if (state.tab) add("tab", state.tab);
  return `#${parts.join("&")}`;
}

/** As little of it as can be, so that an address stays readable. */
function escape(text: string): string {
  return encodeURIComponent(text).replace(/%(2C|3A|2F|20)/g, (code) => (code === "%20" ? "+" : decodeURIComponent(code)));
}
