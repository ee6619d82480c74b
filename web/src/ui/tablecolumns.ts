import type {Item, Layer} from "../contract";
import {formatField} from "../format";

const MOST = 8;

export interface Column {
  field: string;
  heading: string;
}

/** Do its results have windows that its columns do not tell? */
export function isWindowed(layer: Layer, items: readonly Pick<Item, "f">[]): boolean {
  const declared = columnsOf(layer).some(({field}) => field === "window_start" || field === "window_end");
  return !declared && items.some(({f}) => typeof f["window_start"] === "number" && typeof f["window_end"] === "number");
}

/**
 * What a result is about, then its value and figures. Where the figures name parts of the key, those are what readers
 * know it by, and the other parts would push the figures out of sight.
 */
export function columnsOf(layer: Layer): Column[] {
  const shown = layer.value ? [layer.value, ...layer.figures] : layer.figures;
  const named = layer.key.filter((field) => shown.some((figure) => figure.field === field));
  const fields = new Set([...(named.length > 0 ? named : layer.key), ...shown.map(({field}) => field)]);
  return [...fields].slice(0, MOST).map((field) => {
    const {label, unit} = shown.find((figure) => figure.field === field) ?? {};
    return {field, heading: `${label || formatField(field)}${unit && unit !== "time" ? `, ${unit}` : ""}`};
  });
}
