import type {Item} from "../contract";
import type {Colours} from "../scale";
import type {Change} from "../store";
import {Columns, type ColumnName} from "./columns";
import {progress} from "./motion";

export const APPEAR = 450;
export const VANISH = 700;
/** How long the outline of what was retracted is left. */
export const OUTLINE = 1200;
const [FIRM, PROVISIONAL, TAKEN_BACK] = [0, 1, 2];
/** Times go to the graphics card as 32-bit floats, exact to a millisecond for so long; then they start anew. */
const REBASE = 3_600_000;

const COMMON = ["getColourFrom", "getColourTo", "getFade"] as const;

/** The items of one layer as rows for the graphics card: they appear, change colour and fade away by themselves. */
export abstract class Instances<Name extends ColumnName> {
  readonly columns: Columns<Name | (typeof COMMON)[number]>;
  readonly items: Item[] = [];
  /** Times in the columns count from here. */
  base = performance.now();
  /** Until then something moves or fades. */
  busyUntil = 0;
  version = 0;
  #rows = new Map<string, number>();
  #dying = new Map<string, number>();
  #emphasis = new Map<string, number>();
  readonly #wanted = new Uint8ClampedArray(4);

  constructor(
    names: readonly Name[],
    protected colours: Colours,
    protected mainColours: boolean,
  ) {
    this.columns = new Columns([...names, ...COMMON]);
  }

  /** Writes where the item of a row is. `before` is what the row showed until now. */
  protected abstract place(row: number, item: Item, before: Item | null, now: number): void;

  get size(): number {
    return this.columns.length;
  }

  row(key: string): number | undefined {
    return this.#dying.has(key) ? undefined : this.#rows.get(key);
  }

  /** Is the row on its way out? Such are not for clicking. */
  dying(row: number): boolean {
    return this.#dying.has(this.items[row]!.k);
  }

  apply(change: Change, now: number): void {
    this.#rebase(now);
    const retracted = new Set(change.retracted);
    for (const key of change.gone) this.#leave(key, now, retracted.has(key));
    for (const item of change.changed) this.#show(item, now);
    this.version += 1;
  }

  /** Paints all anew: another theme, or another field to colour by. */
  recolour(colours: Colours, main: boolean, now: number): void {
    this.colours = colours;
    this.mainColours = main;
    for (let row = 0; row < this.size; row++) if (!this.dying(row)) this.#paint(row, this.items[row]!, now, 200);
    this.version += 1;
  }

  emphasise(key: string, amount: number): void {
    if (amount > 0) this.#emphasis.set(key, amount);
    else this.#emphasis.delete(key);
    const row = this.#rows.get(key);
    if (row === undefined) return;
    this.columns.get("getFade")[row * 4 + 3] = amount;
    this.columns.touch("getFade");
    this.version += 1;
  }

  /** Takes away what has faded. */
  sweep(now: number): void {
    for (const [key, at] of this.#dying) {
      if (at > now) continue;
      this.#dying.delete(key);
      this.#drop(key);
      this.version += 1;
    }
  }

  /** Something will have to be swept then. */
  get sweepAt(): number | null {
    return this.#dying.size === 0 ? null : Math.min(...this.#dying.values());
  }

  protected busy(until: number): void {
    if (until > this.busyUntil) this.busyUntil = until;
  }

  /** Called when a row takes over the content of another. */
  protected moved(_from: number, _to: number): void {}

  /** Times in other columns count from a new base. */
  protected rebased(_by: number): void {}

  #show(item: Item, now: number): void {
    if (!this.drawable(item)) return this.#leave(item.k, now);
    let row = this.#rows.get(item.k);
    const fresh = row === undefined;
    if (row === undefined) {
      row = this.columns.add();
      this.#rows.set(item.k, row);
      this.columns.get("getColourFrom").fill(0, row * 4, row * 4 + 4);
      this.columns.get("getColourTo").fill(0, row * 4, row * 4 + 4);
      this.columns.get("getFade").set([now - this.base, 0, 0, this.#emphasis.get(item.k) ?? 0], row * 4);
    }
    this.#dying.delete(item.k);
    const before = fresh ? null : this.items[row]!;
    this.items[row] = item;
    this.place(row, item, before, now);
    this.#paint(row, item, now, APPEAR);
  }

  /** Has it a place to be drawn at? */
  protected abstract drawable(item: Item): boolean;

  #paint(row: number, item: Item, now: number, duration: number): void {
    const to = this.columns.get<Uint8ClampedArray>("getColourTo");
    const fade = this.columns.get("getFade");
    this.colours.write(this.colours.valueOf(item, this.mainColours), this.#wanted, 0);
    const provisional = item.timing === "EARLY" ? PROVISIONAL : FIRM;
    const at = row * 4;
    if (this.#wanted.every((value, i) => value === to[at + i]) && fade[at + 2] === provisional) return;
    this.#from(row, now);
    to.set(this.#wanted, at);
    fade[at] = now - this.base;
    fade[at + 1] = duration;
    fade[at + 2] = provisional;
    this.columns.touch("getColourTo");
    this.columns.touch("getFade");
    this.busy(now + duration);
  }

  /** What is seen at this moment becomes what the next change starts from. */
  #from(row: number, now: number): void {
    const from = this.columns.get("getColourFrom");
    const to = this.columns.get("getColourTo");
    const fade = this.columns.get("getFade");
    const at = row * 4;
    const amount = progress(fade[at]!, fade[at + 1]!, now - this.base);
    // Something that appears has its own colour at once, and only its opacity grows.
    for (let i = 0; i < 4; i++) from[at + i] = Math.round(from[at + i]! + (to[at + i]! - from[at + i]!) * amount);
    this.columns.touch("getColourFrom");
  }

  /** What has expired fades; of what was retracted only an outline is left for a moment. */
  #leave(key: string, now: number, retracted = false): void {
    const row = this.#rows.get(key);
    if (row === undefined || this.#dying.has(key)) return;
    this.#from(row, now);
    this.columns.get("getColourTo")[row * 4 + 3] = 0;
    const fade = this.columns.get("getFade");
    const duration = retracted ? OUTLINE : VANISH;
    fade.set([now - this.base, duration], row * 4);
    if (retracted) fade[row * 4 + 2] = TAKEN_BACK;
    this.columns.touch("getColourTo");
    this.columns.touch("getFade");
    this.#dying.set(key, now + duration);
    this.busy(now + duration);
  }

  #drop(key: string): void {
    const row = this.#rows.get(key)!;
    this.#rows.delete(key);
    const moved = this.columns.remove(row);
    if (moved !== null) {
      this.items[row] = this.items[moved]!;
      this.#rows.set(this.items[row].k, row);
      this.moved(moved, row);
    }
    this.items.length = this.columns.length;
  }

  #rebase(now: number): void {
    const by = now - this.base;
    if (by < REBASE) return;
    const fade = this.columns.get("getFade");
    for (let row = 0; row < this.size; row++) fade[row * 4]! -= by;
    this.columns.touch("getFade");
    this.rebased(by);
    this.base = now;
  }
}
