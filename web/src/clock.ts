/** The server's clock, as its messages tell it. */
export class Clock {
  #offset: number | null = null;

  constructor(private readonly local: () => number = Date.now) {}

  /** A message that the server stamped with `now` has come. */
  heard(now: number): void {
    const offset = now - this.local();
    // A message that waited on its way makes the server's clock look slow: the highest offset is the truest, but let it
    // sink again, lest one that was set back is believed for ever.
    this.#offset = this.#offset === null || offset > this.#offset ? offset : this.#offset + (offset - this.#offset) * 0.05;
  }

  now(): number {
    return this.local() + (this.#offset ?? 0);
  }
}
