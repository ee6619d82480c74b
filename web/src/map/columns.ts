export type ColumnType = "float32" | "float64" | "uint8";
export type Column = Float32Array | Float64Array | Uint8ClampedArray;
export interface ColumnSpec {
  type: ColumnType;
  size: number;
}

const MAKE: Record<ColumnType, (length: number) => Column> = {
  float32: (length) => new Float32Array(length),
  float64: (length) => new Float64Array(length),
  uint8: (length) => new Uint8ClampedArray(length),
};

/**
 * Rows in typed arrays that the graphics card takes as they are. Rows stay dense: removing one moves the last into its
 * place. A column is handed over anew only after `touch`, so that what did not change is not uploaded again.
 */
export class Columns<Name extends string> {
  #arrays = {} as Record<Name, Column>;
  #handed = {} as Record<Name, {value: Column; size: number} | undefined>;
  #capacity = 0;
  length = 0;

  constructor(private readonly specs: Record<Name, ColumnSpec>) {
    this.#grow(256);
  }

  get<T extends Column>(name: Name): T {
    return this.#arrays[name] as T;
  }

  /** A new row, with whatever stood there before. */
  add(): number {
    if (this.length === this.#capacity) this.#grow(this.#capacity * 2);
    return this.length++;
  }

  /** Returns the row that moved into its place, or null when it was the last. */
  remove(row: number): number | null {
    const last = --this.length;
    if (row === last) return null;
    for (const name of this.#names) {
      const {size} = this.specs[name];
      this.#arrays[name].copyWithin(row * size, last * size, (last + 1) * size);
    }
    this.touchAll();
    return last;
  }

  touch(name: Name): void {
    this.#handed[name] = undefined;
  }

  touchAll(): void {
    for (const name of this.#names) this.touch(name);
  }

  /** What deck.gl takes as `data`, with the columns under the names of accessors. */
  data(): {length: number; attributes: Record<string, {value: Column; size: number}>} {
    const attributes: Record<string, {value: Column; size: number}> = {};
    for (const name of this.#names) {
      attributes[name] = this.#handed[name] ??= {value: this.#arrays[name], size: this.specs[name].size};
    }
    return {length: this.length, attributes};
  }

  get #names(): Name[] {
    return Object.keys(this.specs) as Name[];
  }

  #grow(capacity: number): void {
    for (const name of this.#names) {
      const {type, size} = this.specs[name];
      const array = MAKE[type](capacity * size);
      if (this.#arrays[name]) array.set(this.#arrays[name]);
      this.#arrays[name] = array;
    }
    this.#capacity = capacity;
    this.touchAll();
  }
}
