import "@fontsource-variable/figtree";
import "./style/base.css";
import "./style/panels.css";
import "./style/strip.css";
import "./style/time.css";
import "./style/phone.css";
import "./style/board.css";
import {Api} from "./api";
import {App, FALLBACK} from "./app";
import {LiveMap} from "./map/map";
import {buildPage} from "./page";
import {State} from "./state";
import {Stats} from "./stats";
import {Themes} from "./theme";
import type {OpenTransport} from "./transport";
import {parseHash} from "./url";

declare global {
  interface Window {
    /** For measuring and testing. */
    tidewheel: {
      /** Frames that were drawn, and milliseconds of the main thread for each: `frames`, `p50`, `p99`; `message` likewise. */
      stats: Stats;
      /** How many items each layer has, and how many of them are drawn. */
      view: () => Record<string, number>;
      drawn: () => Record<string, number>;
      app: App;
    };
  }
}

/** Makes the page in the document and starts it, with messages from where `transports` says. */
export function setUp(transports: (api: Api) => OpenTransport): void {
  const url = parseHash(location.hash);
  const api = new Api(new URL("./", location.href), new URLSearchParams(location.search).get("token"));
  const stats = new Stats();
  const themes = new Themes(url.theme);
  const phone = matchMedia("(max-width: 760px)");
  const state = new State(url, themes, phone.matches);
  const map = new LiveMap({
    parent: document.getElementById("map")!,
    camera: {lon: url.lon ?? FALLBACK.lon, lat: url.lat ?? FALLBACK.lat, zoom: url.zoom ?? FALLBACK.zoom},
    theme: themes.theme.value,
    stats,
    reducedMotion: matchMedia("(prefers-reduced-motion: reduce)").matches,
  });
  const app = new App(state, api, map, transports(api), url, stats);
  buildPage(app, phone);
  window.tidewheel = {stats, view: () => app.store.counts(), drawn: () => map.counts(), app};
  // Only a reader who types or pastes another address gets here: all that is in it is taken anew.
  window.addEventListener("hashchange", () => location.reload());
  void app.start();
}
