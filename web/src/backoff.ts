export interface BackoffOptions {
  first?: number;
  most?: number;
  random?: () => number;
}

/** How long to wait before trying again: twice as long each time, and a little differently for everyone. */
export class Backoff {
  #failures = 0;
  readonly #first: number;
  readonly #most: number;
  readonly #random: () => number;

  constructor({first = 500, most = 15_000, random = Math.random}: BackoffOptions = {}) {
    this.#first = first;
    this.#most = most;
    this.#random = random;
  }

  get failures(): number {
    return this.#failures;
  }

  /** Milliseconds, between half of the full wait and all of it. */
  next(): number {
    const full = Math.min(this.#most, this.#first * 2 ** this.#failures);
    this.#failures += 1;
    return Math.round(full * (0.5 + this.#random() / 2));
  }

  succeeded(): void {
    this.#failures = 0;
  }
}
