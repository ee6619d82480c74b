import type {Api} from "./api";
import type {Subscription} from "./contract";

export type TransportKind = "websocket" | "events";

export interface TransportHandlers {
  message(text: string): void;
  /** It broke, or never came to be. Called once, and not after `close`. */
  closed(): void;
}

/** A way by which messages come. */
export interface Transport {
  /** True when the subscription could be changed on the open connection; otherwise it has to be opened anew. */
  subscribe(id: number, subscription: Subscription): boolean;
  close(): void;
}

export type OpenTransport = (kind: TransportKind, subscription: Subscription, handlers: TransportHandlers) => Transport;

const EVENTS = ["hello", "snapshot", "update", "status", "error"];

export function browserTransports(api: Api): OpenTransport {
  return (kind, subscription, handlers) =>
    kind === "websocket" ? overWebSocket(api.liveUrl(), handlers) : overEvents(api.liveUrl(subscription), handlers);
}

function overWebSocket(url: URL, handlers: TransportHandlers): Transport {
  if (typeof WebSocket === "undefined") {
    // Some browsers are told to have none: that is one more way in which they are blocked.
    const timer = window.setTimeout(() => handlers.closed());
    return {subscribe: () => true, close: () => window.clearTimeout(timer)};
  }
  const socket = new WebSocket(url);
  socket.onmessage = (event) => handlers.message(String(event.data));
  socket.onclose = () => handlers.closed();
  return {
    subscribe: (id, subscription) => {
      if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify({type: "subscribe", id, ...subscription}));
      return true;
    },
    close: () => {
      socket.onmessage = socket.onclose = null;
      socket.close();
    },
  };
}

function overEvents(url: URL, handlers: TransportHandlers): Transport {
  const source = new EventSource(url);
  const close = (): void => source.close();
  for (const type of EVENTS) {
    source.addEventListener(type, (event) => {
      // The browser's own errors have this name as well, and no data.
      if (event instanceof MessageEvent) handlers.message(String(event.data));
    });
  }
  source.onerror = (event) => {
    if (event instanceof MessageEvent) return;
    close();
    handlers.closed();
  };
  return {subscribe: () => false, close};
}
