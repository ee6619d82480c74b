import {Backoff} from "./backoff";
import type {Message, Subscription} from "./contract";
import {Signal} from "./signal";
import type {Timers} from "./timetravel";
import type {OpenTransport, Transport, TransportKind} from "./transport";

export type Link =
  | {kind: "connecting"; transport: TransportKind; failures: number}
  | {kind: "open"; transport: TransportKind}
  /** `wait`: milliseconds until the next attempt. */
  | {kind: "waiting"; wait: number; failures: number};

export interface LiveOptions {
  open: OpenTransport;
  onMessage: (message: Message) => void;
  /** Measures the work that a message makes. */
  measure?: (work: () => void) => void;
  backoff?: Backoff;
  timers?: Timers;
  /** The server says something every second: after so long a silence the connection is taken for dead. */
  silence?: number;
}

/** The stream of messages: connects, connects again with growing waits, and over events where WebSockets are blocked. */
export class Live {
  readonly link = new Signal<Link>({kind: "connecting", transport: "websocket", failures: 0});
  #kind: TransportKind = "websocket";
  #transport: Transport | null = null;
  #greeted = false;
  #unheard = 0;
  #id = 0;
  #subscription: Subscription = {layers: [], region: null, filters: {}};
  #retry: number | null = null;
  #watch: number | null = null;
  readonly #backoff: Backoff;
  readonly #timers: Timers;

  constructor(private readonly options: LiveOptions) {
    this.#backoff = options.backoff ?? new Backoff();
    this.#timers = options.timers ?? {set: (callback, ms) => window.setTimeout(callback, ms), clear: (id) => window.clearTimeout(id)};
  }

  /** The number of the latest subscription; a snapshot for an earlier one is out of date. */
  get subscriptionId(): number {
    return this.#id;
  }

  connect(): void {
    this.#stop();
    this.#greeted = false;
    this.link.set({kind: "connecting", transport: this.#kind, failures: this.#backoff.failures});
    this.#transport = this.options.open(this.#kind, this.#subscription, {
      message: (text) => (this.options.measure ? this.options.measure(() => this.#heard(text)) : this.#heard(text)),
      closed: () => this.#lost(),
    });
    this.#listen();
  }

  /** Asks for other layers, another region or other filters. */
  subscribe(subscription: Subscription): void {
    this.#subscription = subscription;
    this.#id += 1;
    if (!this.#transport) return;
    if (!this.#transport.subscribe(this.#id, subscription)) this.connect();
  }

  /** Does not wait any longer: the network is back, or the reader asks for it. */
  retryNow(): void {
    if (this.link.value.kind === "waiting") this.connect();
  }

  close(): void {
    this.#stop();
  }

  #heard(text: string): void {
    let message: Message;
    try {
      message = JSON.parse(text) as Message;
    } catch {
      return;
    }
    this.#listen();
    if (message.type === "hello") {
      this.#greeted = true;
      this.#unheard = 0;
      this.#backoff.succeeded();
      this.link.set({kind: "open", transport: this.#kind});
      this.options.onMessage(message);
      if (this.#id > 0 && this.#kind === "websocket") this.#transport?.subscribe(++this.#id, this.#subscription);
      return;
    }
    // What was asked for earlier is on its way still.
    if (message.type === "snapshot" && message.id !== null && this.#kind === "websocket" && message.id !== this.#id) return;
    this.options.onMessage(message);
  }

  #lost(): void {
    this.#stop();
    if (!this.#greeted) {
      this.#unheard += 1;
      // Where a proxy blocks one way, the other may pass: they take turns until one works.
      if (this.#unheard >= 2) this.#kind = this.#kind === "websocket" ? "events" : "websocket";
    }
    const wait = this.#backoff.next();
    this.link.set({kind: "waiting", wait, failures: this.#backoff.failures});
    this.#retry = this.#timers.set(() => this.connect(), wait);
  }

  #listen(): void {
    if (this.#watch !== null) this.#timers.clear(this.#watch);
    this.#watch = this.#timers.set(() => this.#lost(), this.options.silence ?? 8000);
  }

  #stop(): void {
    for (const timer of [this.#retry, this.#watch]) if (timer !== null) this.#timers.clear(timer);
    this.#retry = this.#watch = null;
    this.#transport?.close();
    this.#transport = null;
  }
}
