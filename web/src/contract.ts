/** What the server and the page say to each other. Times are milliseconds since 1970 UTC, by the server's clock or those of events. */

export type Geometry =
  | {kind: "cell"; cell: string}
  | {kind: "point"; lat: string; lon: string; heading?: string | null}
  | {kind: "edge"; from: string; to: string}
  | {kind: "none"};

export type Show = "cells" | "moving" | "points" | "arrows" | "alerts" | "table";

export interface Figure {
  field: string;
  label: string;
  unit?: string;
}

export interface Scale {
  kind: "sequential" | "diverging" | "categorical";
  /** [low, high], or [low, mid, high] of a diverging scale. */
  domain?: number[] | null;
  /** Without them the page's own ramps are used, which suit light and dark. */
  colours?: string[] | null;
  categories?: Record<string, string> | null;
}

export interface Colouring {
  value: Figure | null;
  scale: Scale | null;
}

/** How the results of one topic are shown. Everything the page knows about a job is in here. */
export interface Layer extends Colouring {
  name: string;
  title: string;
  about?: string;
  topic: string;
  key: string[];
  geometry: Geometry;
  show: Show;
  figures: Figure[];
  /** The fields of its items that filters look at. */
  filters: string[];
  /** Further fields that a filter looks at: one that has an allowed value is enough. */
  filters_also?: Record<string, string[]>;
  /** Milliseconds after arrival. */
  expiry: number;
  /** Milliseconds from one window's end to the next; none for sessions, and without windows. */
  period?: number | null;
  on: boolean;
  /** Other ways to colour the same items. */
  alternatives?: Colouring[];
}

export type Timing = "EARLY" | "ON_TIME" | "LATE";
export type Fields = Record<string, unknown>;

export interface Item {
  /** Identity within its layer. */
  k: string;
  /** Event time. */
  t: number;
  /** When it expires. */
  x: number;
  /** Its place: a cell, a point as [longitude, latitude] with a heading, or an edge of two cells. */
  c?: string;
  p?: [number, number];
  h?: number;
  e?: [string, string];
  v: number | string | null;
  timing?: Timing;
  f: Fields;
}

export type Items = Record<string, Item[]>;
export type Region = [west: number, south: number, east: number, north: number];
/** Field → allowed values as text. A field without values allows all. */
export type Filters = Record<string, string[]>;

export interface Hello {
  type: "hello";
  protocol: number;
  now: number;
  speed?: number;
  layers: Layer[];
}
export interface Snapshot {
  type: "snapshot";
  id: number | null;
  now: number;
  layers: Items;
}
export interface Update {
  type: "update";
  now: number;
  changed?: Items;
  gone?: Record<string, string[]>;
}
export interface TopicStatus {
  watermark?: number | null;
  rate?: number;
  count?: number;
}
export interface Held {
  job: string;
  /** For people: "held by input.door/2 for 5 min: never an event". */
  text: string;
  by: {topic: string; partition: number; since: number}[];
  /** Whether all that hold it have ever moved. */
  moved: boolean;
}
export interface Status {
  type: "status";
  now: number;
  /** When something last came to the log; null if nothing ever did. */
  last?: number | null;
  event_time: number | null;
  watermark: number | null;
  lag: number | null;
  behind: number | null;
  in_rate: number;
  result_rate: number;
  latency: {p50: number; p90: number; p99: number} | null;
  /** Runs of jobs that have not come to their first results: what is going on, for people. */
  starting?: {run: string; text: string; since: number}[];
  /** Jobs whose watermark is held, and by which partitions since when. */
  held?: Held[];
  late: number;
  dead: number;
  /** Results that could not be decoded. */
  bad: number;
  clients: number;
  topics?: Record<string, TopicStatus>;
  /** The layers that have more keys than the server shows. */
  partial?: Record<string, {shown: number; keys: number}>;
}
export interface Pong {
  type: "pong";
  id: number;
  now: number;
}
export interface Failure {
  type: "error";
  message: string;
}
export type Message = Hello | Snapshot | Update | Status | Pong | Failure;

export interface Subscription {
  layers: string[];
  region: Region | null;
  filters: Filters;
}

export interface View {
  now: number;
  at?: number;
  layers: Items;
}
export interface HistoryPoint {
  t: number;
  v: number | string | null;
  timing?: Timing;
  f: Fields;
}
export interface History {
  layer: string;
  key: string;
  points: HistoryPoint[];
}
export type Alert = Item & {layer: string};
export interface Background {
  land: string | null;
  lines: GeoJSON.FeatureCollection | null;
  tiles: string | null;
  attribution: string;
  view: {lon: number; lat: number; zoom: number};
}
