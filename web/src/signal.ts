/** A value that tells when it changes. */
export class Signal<T> {
  #value: T;
  #listeners = new Set<(value: T) => void>();

  constructor(value: T) {
    this.#value = value;
  }

  get value(): T {
    return this.#value;
  }

  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener(value);
  }

  /** Calls `listener` at every change from now on; the result ends it. */
  subscribe(listener: (value: T) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** As `subscribe`, and calls it at once. */
  watch(listener: (value: T) => void): () => void {
    listener(this.#value);
    return this.subscribe(listener);
  }
}
