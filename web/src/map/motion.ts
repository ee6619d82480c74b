/** Movement between reports: where something is that glides from one place to another. Times are of one common clock. */

/** A vehicle that jumps further than this (degrees) was not driving: it appears at the new place. */
const JUMP = 0.02;
const SHORTEST = 250;
const LONGEST = 4000;

export interface Glide {
  fromLon: number;
  fromLat: number;
  toLon: number;
  toLat: number;
  start: number;
  duration: number;
}

/** How far along a glide is, 0…1. */
export function progress(start: number, duration: number, now: number): number {
  return duration <= 0 ? 1 : Math.min(1, Math.max(0, (now - start) / duration));
}

export function placeAt(glide: Glide, now: number): [lon: number, lat: number] {
  const amount = progress(glide.start, glide.duration, now);
  return [glide.fromLon + (glide.toLon - glide.fromLon) * amount, glide.fromLat + (glide.toLat - glide.fromLat) * amount];
}

/**
 * The glide to a newly reported place. It begins where the vehicle is seen, and takes as long as the next report will
 * take to come, judging by the last two: it is shown that little later, and never stands still between.
 */
export function glideTo(glide: Glide | null, lon: number, lat: number, now: number, interval: number): Glide {
  if (!glide) return {fromLon: lon, fromLat: lat, toLon: lon, toLat: lat, start: now, duration: 0};
  const [fromLon, fromLat] = placeAt(glide, now);
  const jumps = Math.abs(lon - fromLon) > JUMP || Math.abs(lat - fromLat) > JUMP;
  if (jumps) return {fromLon: lon, fromLat: lat, toLon: lon, toLat: lat, start: now, duration: 0};
  return {fromLon, fromLat, toLon: lon, toLat: lat, start: now, duration: glideTime(interval)};
}

/** A little longer than the time between reports, so that a report that is a little late finds the vehicle still moving. */
export function glideTime(interval: number): number {
  return Math.min(LONGEST, Math.max(SHORTEST, interval * 1.15));
}

/** The turn from one heading to another, the short way round, in degrees: -180…180. */
export function turn(from: number, to: number): number {
  return ((((to - from) % 360) + 540) % 360) - 180;
}
