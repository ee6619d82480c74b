import type {Status} from "./contract";
import {standsAt} from "./rest";
import {Signal} from "./signal";
import {HOUR} from "./timetravel";

export interface EventClockOptions {
  /** The server's clock. */
  now: () => number;
  /** The moment of it that is shown, if that is not now. */
  past: () => number | null;
  /** How much faster than life the events come. */
  speed: () => number;
}

/**
 * How far event time is now, and was at any moment of the last hour, as the server told every second. All that the page
 * says of event time comes from here, so that no two of its parts differ.
 */
export class EventClock {
  /** The event time of what is shown, in whole seconds; null before the first event. */
  readonly shown = new Signal<number | null>(null);
  #heard: {at: number; time: number}[] = [];
  #time: number | null = null;
  #held: number | null = null;
  /** When event time came to a stand, as far as is known. */
  #stands = Infinity;

  constructor(private readonly options: EventClockOptions) {}

  /** The same to the millisecond; where nothing is known, the server's clock. */
  get time(): number {
    return this.#time ?? this.options.past() ?? this.options.now();
  }

  /** How far it is, whatever is shown. */
  get live(): number {
    return this.at(this.options.now());
  }

  /** Has the server told of it? */
  get known(): boolean {
    return this.#heard.length > 0;
  }

  /** Event time at a moment of the server's clock. */
  at(moment: number): number {
    const before = this.#heard.findLastIndex(({at}) => at <= moment);
    const [known, next] = [this.#heard[Math.max(0, before)], this.#heard[before + 1]];
    if (!known) return moment;
    if (before < 0 || !next) return known.time + (Math.min(moment, this.#stands) - Math.min(known.at, this.#stands)) * this.options.speed();
    return known.time + ((next.time - known.time) * (moment - known.at)) / (next.at - known.at);
  }

  heard({now, last, event_time: time}: Pick<Status, "now" | "last" | "event_time">): void {
    if (time === null) return;
    const before = this.#heard.at(-1);
    const stands = standsAt({now, ...(last !== undefined && {last})});
    // Where it has not gone on since the last message it will not until the next.
    this.#stands = before?.time === time ? Math.min(stands, before.at) : stands;
    // A server that was started anew may have gone back.
    this.#heard = this.#heard.filter(({at}) => at < now && at >= now - HOUR);
    this.#heard.push({at: now, time});
    this.tick();
  }

  tick(): void {
    const past = this.options.past();
    // A moment that is held stays what it was when it was stopped, whatever is learnt since.
    if (past !== null && past === this.#held) return;
    this.#held = this.known ? past : null;
    this.#time = this.known || past !== null ? this.at(past ?? this.options.now()) : null;
    this.shown.set(this.#time === null ? null : Math.floor(this.#time / 1000) * 1000);
  }
}
