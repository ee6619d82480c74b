/** The last durations of something that happens again and again, in milliseconds. */
export class Durations {
  readonly #times: Float64Array;
  #count = 0;

  constructor(kept = 1200) {
    this.#times = new Float64Array(kept);
  }

  add(ms: number): void {
    this.#times[this.#count % this.#times.length] = ms;
    this.#count += 1;
  }

  reset(): void {
    this.#count = 0;
  }

  get count(): number {
    return this.#count;
  }

  /** The duration that a share of the last ones did not exceed; null before the first. */
  quantile(share: number): number | null {
    const kept = Math.min(this.#count, this.#times.length);
    if (kept === 0) return null;
    const sorted = this.#times.slice(0, kept).sort();
    return sorted[Math.min(kept - 1, Math.ceil(share * kept) - 1)]!;
  }
}

/**
 * How much of the main thread the page itself takes: for a frame that is drawn (what is due, layers, draw calls), and for
 * a message (reading it, the store, the columns). Frames come up to sixty times a second, messages ten times.
 */
export class Stats {
  readonly frame = new Durations();
  readonly message = new Durations();
  #pending = 0;

  /** Work for the next frame. */
  prepare(work: () => void): void {
    const start = performance.now();
    work();
    this.#pending += performance.now() - start;
  }

  /** A frame was drawn, which took so long besides what was prepared for it. */
  drew(ms: number): void {
    this.frame.add(ms + this.#pending);
    this.#pending = 0;
  }

  /** The work that a message makes. */
  receive(work: () => void): void {
    const start = performance.now();
    work();
    this.message.add(performance.now() - start);
  }

  reset(): void {
    this.frame.reset();
    this.message.reset();
    this.#pending = 0;
  }

  get frames(): number {
    return this.frame.count;
  }

  /** Milliseconds per frame. */
  get p50(): number | null {
    return this.frame.quantile(0.5);
  }

  get p99(): number | null {
    return this.frame.quantile(0.99);
  }
}
