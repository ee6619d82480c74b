import type {View} from "./contract";
import {Signal} from "./signal";

export const HOUR = 3_600_000;
/** How often a past that plays is asked for. */
const STEP = 1000;

export type Moment =
  | {kind: "live"}
  /** `at`: by the server's clock. */
  | {kind: "past"; at: number; playing: boolean; speed: number; loading: boolean; error: string | null};

export interface Timers {
  set(callback: () => void, ms: number): number;
  clear(id: number): void;
}

export interface TimeTravelOptions {
  now: () => number;
  fetch: (at: number, abort: AbortSignal) => Promise<View>;
  show: (view: View) => void;
  timers?: Timers;
}

/** Pause, rewind over the last hour, play from there, and back to live. */
export class TimeTravel {
  readonly moment = new Signal<Moment>({kind: "live"});
  #abort: AbortController | null = null;
  #timer: number | null = null;
  readonly #timers: Timers;

  constructor(private readonly options: TimeTravelOptions) {
    this.#timers = options.timers ?? {set: (callback, ms) => window.setTimeout(callback, ms), clear: (id) => window.clearTimeout(id)};
  }

  get past(): Extract<Moment, {kind: "past"}> | null {
    return this.moment.value.kind === "past" ? this.moment.value : null;
  }

  /** The earliest and the latest moment that can be shown. */
  get range(): [earliest: number, latest: number] {
    const now = this.options.now();
    return [now - HOUR, now];
  }

  /** Stops at what is seen now, or about to be. */
  pause(): void {
    this.#stopTimer();
    if (!this.past) return this.moment.set({kind: "past", at: this.options.now(), playing: false, speed: 1, loading: false, error: null});
    this.#set({playing: false});
    // What was asked for still comes; what was yet to be asked for is asked for now.
    if (this.past.loading && !this.#abort) void this.#load();
  }

  /** Shows how it was at that moment. */
  seek(at: number): void {
    const [earliest, latest] = this.range;
    const {playing, speed} = this.past ?? {playing: false, speed: 1};
    this.#halt();
    this.moment.set({kind: "past", at: Math.min(latest, Math.max(earliest, at)), playing, speed, loading: true, error: null});
    // While a slider is dragged only the place where it rests for a moment is asked for.
    this.#timer = this.#timers.set(() => void this.#load(), 90);
  }

  step(by: number): void {
    this.seek((this.past?.at ?? this.options.now()) + by);
  }

  play(speed = this.past?.speed ?? 1): void {
    if (!this.past) return;
    this.#halt();
    this.#set({playing: true, speed});
    this.#next();
  }

  live(): void {
    this.#halt();
    this.moment.set({kind: "live"});
  }

  toggle(): void {
    if (!this.past || this.past.playing) this.pause();
    else this.play();
  }

  /** Asks again for the moment that is shown: other layers, another region or other filters are wanted. */
  async reload(): Promise<void> {
    if (this.past) await this.#load();
  }

  async #load(): Promise<void> {
    const past = this.past;
    if (!past) return;
    // Whoever asks goes on from there: with two timers a past would play twice as fast.
    this.#halt();
    const abort = (this.#abort = new AbortController());
    try {
      const view = await this.options.fetch(Math.round(past.at), abort.signal);
      if (abort.signal.aborted) return;
      this.#abort = null;
      this.options.show(view);
      this.#set({loading: false, error: null});
    } catch (error) {
      if (abort.signal.aborted) return;
      this.#abort = null;
      this.#set({loading: false, error: error instanceof Error ? error.message : String(error)});
    }
    if (this.past?.playing) this.#next();
  }

  #next(): void {
    this.#timer = this.#timers.set(() => {
      const past = this.past;
      if (!past?.playing) return;
      const at = past.at + STEP * past.speed;
      if (at >= this.options.now()) this.live();
      else {
        this.#set({at});
        void this.#load();
      }
    }, STEP);
  }

  #halt(): void {
    this.#abort?.abort();
    this.#abort = null;
    this.#stopTimer();
  }

  #stopTimer(): void {
    if (this.#timer !== null) this.#timers.clear(this.#timer);
    this.#timer = null;
  }

  #set(change: Partial<Extract<Moment, {kind: "past"}>>): void {
    if (this.past) this.moment.set({...this.past, ...change});
  }
}
