import type {Alert, Background, History, Layer, Subscription, View} from "./contract";
import {joinValues} from "./filters";

/** The server's answers over HTTP. */
export class Api {
  /** `base` is where the page came from; a token in the page's own address is handed on. */
  constructor(
    private readonly base: URL,
    private readonly token: string | null = null,
  ) {}

  layers(): Promise<{layers: Layer[]}> {
    return this.#get("api/layers");
  }

  background(): Promise<Background> {
    return this.#get("api/background");
  }

  view(subscription: Subscription, at: number, abort: AbortSignal): Promise<View> {
    const query = subscriptionQuery(subscription);
    query.set("at", String(at));
    return this.#get("api/view", query, abort);
  }

  /** The results of a key; `since` and `until` are event times. */
  history(layer: string, key: string, span: {since?: number; until?: number}, abort: AbortSignal): Promise<History> {
    const query = new URLSearchParams({key});
    if (span.since !== undefined) query.set("since", String(Math.round(span.since)));
    if (span.until !== undefined) query.set("until", String(Math.round(span.until)));
    return this.#get(`api/layers/${encodeURIComponent(layer)}/history`, query, abort);
  }

  alerts(): Promise<{alerts: Alert[]}> {
    return this.#get("api/alerts");
  }

  file(path: string): Promise<unknown> {
    return this.#get(path.replace(/^\//, ""));
  }

  /** Where the live stream is, as a WebSocket or (with the subscription in the address) as server-sent events. */
  liveUrl(subscription?: Subscription): URL {
    const url = this.#url(subscription ? "api/live/events" : "api/live", subscription && subscriptionQuery(subscription));
    if (!subscription) url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    return url;
  }

  async #get<T>(path: string, query?: URLSearchParams, signal?: AbortSignal): Promise<T> {
    const response = await fetch(this.#url(path, query), signal ? {signal} : {});
    if (!response.ok) {
      const text = (await response.text()).slice(0, 200);
      throw new Error(`${path}: ${response.status} ${text || response.statusText}`);
    }
    return (await response.json()) as T;
  }

  #url(path: string, query?: URLSearchParams): URL {
    const url = new URL(path, this.base);
    if (query) url.search = query.toString();
    if (this.token) url.searchParams.set("token", this.token);
    return url;
  }
}

/** layers=a,b&region=w,s,e,n&filter=mode:bus,tram */
export function subscriptionQuery({layers, region, filters}: Subscription): URLSearchParams {
  const query = new URLSearchParams({layers: layers.join(",")});
  if (region) query.set("region", region.join(","));
  for (const [field, values] of Object.entries(filters)) {
    if (values.length > 0) query.append("filter", `${field}:${joinValues(values)}`);
  }
  return query;
}
