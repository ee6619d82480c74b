/** How things are written for people. Times are in the reader's own zone. */

const WHOLE = new Intl.NumberFormat("en", {maximumFractionDigits: 0});
const LARGE = new Intl.NumberFormat("en", {notation: "compact", maximumFractionDigits: 1});
/** Milliseconds since 1970 are a time of this century from here on; no other figure is as large. */
const TIMES_FROM = 946_684_800_000;

export function formatNumber(value: number): string {
  if (!Number.isFinite(value)) return "–";
  if (Number.isInteger(value)) return Math.abs(value) >= 100_000 ? LARGE.format(value) : WHOLE.format(value).replace("-", "−");
  const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
  return String(Number(value.toFixed(digits))).replace("-", "−");
}

export function formatRate(perSecond: number | null | undefined): string {
  if (perSecond === null || perSecond === undefined) return "–";
  return perSecond > 0 && perSecond < 10 ? perSecond.toFixed(1) : LARGE.format(Math.round(perSecond));
}

/** 240 ms, 1.2 s, 45 s, 3 min, 2 h. */
export function formatDuration(ms: number | null | undefined): string {
  if (ms === null || ms === undefined || !Number.isFinite(ms)) return "–";
  const size = Math.abs(ms);
  const sign = ms < 0 ? "−" : "";
  if (size < 950) return `${sign}${Math.round(size)} ms`;
  if (size < 9_950) return `${sign}${(size / 1000).toFixed(1)} s`;
  if (size < 90_000) return `${sign}${Math.round(size / 1000)} s`;
  if (size < 5_400_000) return `${sign}${Math.round(size / 60_000)} min`;
  return `${sign}${(size / 3_600_000).toFixed(1)} h`;
}

export function formatTime(ms: number, zone?: string): string {
  return new Date(ms).toLocaleTimeString("en-GB", {hour: "2-digit", minute: "2-digit", second: "2-digit", timeZone: zone});
}

export function formatDate(ms: number, zone?: string): string {
  return new Date(ms).toLocaleDateString("en-GB", {weekday: "short", day: "numeric", month: "short", timeZone: zone});
}

/** A time of day, with its date where that is not the day of `now`. */
export function formatMoment(ms: number, now: number, zone?: string): string {
  const day = formatDate(ms, zone);
  return day === formatDate(now, zone) ? formatTime(ms, zone) : `${day}, ${formatTime(ms, zone).slice(0, 5)}`;
}

/** 3 s ago, 5 min ago. */
export function formatAge(ms: number): string {
  return ms < 2000 ? "just now" : `${formatDuration(Math.floor(ms / 1000) * 1000).replace(".0 ", " ")} ago`;
}

/** A figure with its unit. */
export function formatValue(value: unknown, unit = ""): string {
  if (value === null || value === undefined || value === "") return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") {
    if (unit === "time" || (Number.isInteger(value) && value > TIMES_FROM)) return formatTime(value);
    if (unit === "ms") return formatDuration(value);
    return unit ? `${formatNumber(value)}${unit === "°" ? "" : " "}${unit}` : formatNumber(value);
  }
  if (typeof value === "object") return JSON.stringify(value);
  return unit ? `${String(value)} ${unit}` : String(value);
}

/** The name of a field as people would write it: operating_day → operating day. */
export function formatField(field: string): string {
  return field.replaceAll("_", " ");
}

/** Longitude and latitude: 60.1699° N, 24.9384° E. */
export function formatPlace(lon: number, lat: number): string {
  return `${Math.abs(lat).toFixed(4)}° ${lat < 0 ? "S" : "N"}, ${Math.abs(lon).toFixed(4)}° ${lon < 0 ? "W" : "E"}`;
}

/** A round length that is at most `pixels` long on the map, for a scale bar. */
export function scaleBar(metresPerPixel: number, pixels: number): {label: string; width: number} {
  const most = metresPerPixel * pixels;
  const magnitude = 10 ** Math.floor(Math.log10(most));
  const metres = [5, 2, 1].map((n) => n * magnitude).find((n) => n <= most) ?? magnitude;
  return {label: metres >= 1000 ? `${metres / 1000} km` : `${metres} m`, width: metres / metresPerPixel};
}
