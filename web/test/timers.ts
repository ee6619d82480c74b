import type {Timers} from "../src/timetravel";

/** Time that passes when the test says so. */
export class TestTimers implements Timers {
  now = 1_000_000_000;
  #pending = new Map<number, {at: number; callback: () => void}>();
  #next = 1;

  set(callback: () => void, ms: number): number {
    this.#pending.set(this.#next, {at: this.now + ms, callback});
    return this.#next++;
  }

  clear(id: number): void {
    this.#pending.delete(id);
  }

  /** Lets time pass, with all that is due in its order, and what that promised. */
  async pass(ms: number): Promise<void> {
    const until = this.now + ms;
    for (;;) {
      const due = [...this.#pending].filter(([, {at}]) => at <= until).sort(([, a], [, b]) => a.at - b.at)[0];
      if (!due) break;
      this.#pending.delete(due[0]);
      this.now = due[1].at;
      due[1].callback();
      for (let i = 0; i < 5; i++) await Promise.resolve();
    }
    this.now = until;
  }

  get count(): number {
    return this.#pending.size;
  }
}
