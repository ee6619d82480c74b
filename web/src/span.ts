import type {HistoryPoint} from "./contract";

/** How much of what became of a thing is told beside it. */
export const SPAN = 15 * 60_000;

export interface Told {
  /** The event time of the one result that is selected, if it is one of its own. */
  own: number | undefined;
  /** The event time of the result that is shown of it, if one is. */
  shown: number | undefined;
  /** Event time at the moment that the page shows, where the server has told. */
  clock: number | null;
  past: boolean;
}

/**
 * The results to ask for, by event time: that of a replay may be years from every clock, and results may be far behind
 * the events, or, while they are provisional, ahead of them. All there are where nothing is known of it.
 */
export function spanOf({own, shown, clock, past}: Told): {since?: number; until?: number} {
  if (own !== undefined) return {since: own - SPAN, until: own};
  const latest = shown ?? clock;
  if (latest === null) return {};
  return {since: latest - SPAN, ...(past && {until: Math.max(latest, clock ?? latest)})};
}

/** The last of them, where more were to be had. */
export function lastOf(points: readonly HistoryPoint[]): HistoryPoint[] {
  const last = points.at(-1);
  return last ? points.filter(({t}) => t >= last.t - SPAN) : [];
}
