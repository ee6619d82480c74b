import {formatValue} from "../format";
import {identifier} from "./describe";

/** A figure in a table, whose unit stands in the heading. */
export function formatCell(value: unknown): string {
  return typeof value === "number" && Number.isInteger(value) && Math.abs(value) < 1e9 ? identifier(value) : formatValue(value);
}
