import type {Figure, HistoryPoint, Layer} from "../contract";

/** The figures of a layer that can be plotted: numbers that neither name the thing nor tell a time. */
export function plottable(layer: Layer, history: readonly Pick<HistoryPoint, "f">[]): Figure[] {
  const fields = new Map<string, Figure>();
  for (const figure of [layer.value, ...layer.figures]) if (figure && !fields.has(figure.field)) fields.set(figure.field, figure);
  return [...fields.values()].filter(
    ({field, unit}) => unit !== "time" && !layer.key.includes(field) && history.some(({f}) => typeof f[field] === "number"),
  );
}

/**
 * The one that says most: what the layer is coloured by; or else something measured, which a unit tells from something
 * numbered, such as a direction. A bearing is measured too, but goes round.
 */
export function plottedFirst(layer: Layer, figures: readonly Figure[], colouredBy: string | null): Figure | null {
  const chosen = [colouredBy, layer.value?.field].map((name) => figures.find(({field}) => field === name)).find(Boolean);
  return chosen ?? figures.find(({unit}) => unit && unit !== "°") ?? figures[0] ?? null;
}
