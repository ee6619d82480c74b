import type {Item, Layer} from "../contract";
import {shapeOf} from "../map/cells";
import {formatField, formatNumber, formatValue} from "../format";

/** What an item is called, by the fields of its key: "operator 18 · vehicle 1069". */
export function nameOf(item: Item, layer: Layer): string {
  const parts = layer.key.map((field) => {
    const value = item.f[field];
    if (value === undefined) return null;
    if (layer.geometry.kind === "cell" && field === layer.geometry.cell) return `cell ${shortCell(identifier(value))}`;
    if (layer.geometry.kind === "edge" && field === layer.geometry.from) return `from cell ${shortCell(identifier(value))}`;
    return `${formatField(field)} ${identifier(value)}`;
  });
  const known = parts.filter((part) => part !== null);
  return known.length > 0 ? known.join(" · ") : item.k;
}

/** The first figures in a line, without those that the name tells. */
export function summaryOf(item: Item, layer: Layer, {most = 3, value = true} = {}): string {
  return layer.figures
    .filter(({field}) => item.f[field] !== undefined && !layer.key.includes(field) && (value || field !== layer.value?.field))
    .slice(0, most)
    .map(({field, label, unit}) => `${label} ${formatValue(item.f[field], unit)}`)
    .join(" · ");
}

/** The value in a word or two: "7 vehicles", "3 min", "bus"; null where there is none. */
export function valueIn(item: Item, {value}: Layer): string | null {
  if (!value || item.v === null) return null;
  return typeof item.v === "number" && !value.unit ? `${formatValue(item.v)} ${value.label}` : formatValue(item.v, value.unit);
}

/** Longitude and latitude of an item, wherever it has them from. */
export function placeOf(item: Item): [lon: number, lat: number] | null {
  if (item.p) return item.p;
  const shape = shapeOf(item.c ?? item.e?.[0] ?? "");
  return shape && [shape.lon, shape.lat];
}

export function timingOf(item: Pick<Item, "timing">): {label: string; title: string} | null {
  switch (item.timing) {
    case "EARLY":
      return {label: "provisional", title: "Its window is not over: the figure may still change"};
    case "ON_TIME":
      return {label: "final", title: "Given when the watermark passed the window"};
    case "LATE":
      return {label: "revised", title: "Late events changed it"};
    default:
      return null;
  }
}

/** Numbers that name something are not grouped in thousands. */
export function identifier(value: unknown): string {
  return typeof value === "number" ? (Number.isInteger(value) ? String(value) : formatNumber(value)) : formatValue(value);
}

/** The end of a cell's name says nothing at its resolution. */
export function shortCell(cell: string): string {
  return cell.replace(/f+$/, "");
}
