export type ColumnType = "float32" | "float64" | "uint8";
export type Column = Float32Array | Float64Array | Uint8ClampedArray;

/** All columns that there are. The shaders have each under its name with `instance` for `get`. */
export const COLUMNS = {
  /** Longitude and latitude; where something glides, these are of the place that it leaves. */
  getPosition: {type: "float64", size: 3},
  getTarget: {type: "float64", size: 3},
  /** Heading before, how far it turns (degrees), start and duration of the glide. A heading below -1000 is none. */
  getGlide: {type: "float32", size: 4},
  /** Six corners of a cell as seen from its centre, in degrees, two in each column. */
  getCorners01: {type: "float32", size: 4},
  getCorners23: {type: "float32", size: 4},
  getCorners45: {type: "float32", size: 4},
  /** How wide an arrow is, 0…1. */
  getWeight: {type: "float32", size: 1},
  /** Colour before and after, each with opacity. */
  getColourFrom: {type: "uint8", size: 4},
  getColourTo: {type: "uint8", size: 4},
  /** Start and duration of the change of colour; 0 firm, 1 provisional, 2 retracted; emphasis 0 none, 0.5 hovered, 1 selected. */
  getFade: {type: "float32", size: 4},
} as const satisfies Record<string, {type: ColumnType; size: number}>;
export type ColumnName = keyof typeof COLUMNS;

const MAKE: Record<ColumnType, (length: number) => Column> = {
  float32: (length) => new Float32Array(length),
  float64: (length) => new Float64Array(length),
  uint8: (length) => new Uint8ClampedArray(length),
};

/**
 * Rows in typed arrays that the graphics card takes as they are. Rows stay dense: removing one moves the last into its
 * place. A column is handed over anew only after `touch`, so that what did not change is not uploaded again.
 */
export class Columns<Name extends ColumnName> {
  #arrays = {} as Record<Name, Column>;
  #handed = {} as Record<Name, {value: Column; size: number} | undefined>;
  #capacity = 0;
  length = 0;

  constructor(private readonly names: readonly Name[]) {
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
    for (const name of this.names) {
      const {size} = COLUMNS[name];
      this.#arrays[name].copyWithin(row * size, last * size, (last + 1) * size);
    }
    this.touchAll();
    return last;
  }

  touch(name: Name): void {
    this.#handed[name] = undefined;
  }

  touchAll(): void {
    for (const name of this.names) this.touch(name);
  }

  /** What deck.gl takes as `data`, with the columns under the names of accessors. */
  data(): {length: number; attributes: Record<string, {value: Column; size: number}>} {
    const attributes: Record<string, {value: Column; size: number}> = {};
    for (const name of this.names) {
      attributes[name] = this.#handed[name] ??= {value: this.#arrays[name], size: COLUMNS[name].size};
    }
    return {length: this.length, attributes};
  }

  #grow(capacity: number): void {
    for (const name of this.names) {
      const {type, size} = COLUMNS[name];
      const array = MAKE[type](capacity * size);
      if (this.#arrays[name]) array.set(this.#arrays[name]);
      this.#arrays[name] = array;
    }
    this.#capacity = capacity;
    this.touchAll();
  }
}
