/** How much of the main thread the page itself takes for a frame: preparing data, layers and draw calls. */
export class Stats {
  readonly #times: Float64Array;
  #frames = 0;
  #pending = 0;

  constructor(kept = 1200) {
    this.#times = new Float64Array(kept);
  }

  /** Work that the next frame is for: messages that came, layers that were made. */
  spend<T>(work: () => T): T {
    const start = performance.now();
    try {
      return work();
    } finally {
      this.#pending += performance.now() - start;
    }
  }

  /** A frame was drawn, and took so long, apart from what was spent for it before. */
  drew(ms: number): void {
    this.#times[this.#frames % this.#times.length] = ms + this.#pending;
    this.#frames += 1;
    this.#pending = 0;
  }

  reset(): void {
    this.#frames = 0;
    this.#pending = 0;
  }

  get frames(): number {
    return this.#frames;
  }

  /** Milliseconds per frame at a quantile of the last frames; null before the first. */
  quantile(q: number): number | null {
    const kept = Math.min(this.#frames, this.#times.length);
    if (kept === 0) return null;
    const sorted = this.#times.slice(0, kept).sort();
    return sorted[Math.min(kept - 1, Math.ceil(q * kept) - 1)]!;
  }

  get p50(): number | null {
    return this.quantile(0.5);
  }

  get p99(): number | null {
    return this.quantile(0.99);
  }
}
