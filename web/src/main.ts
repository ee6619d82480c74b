import "@fontsource-variable/figtree";
import "./style/base.css";
import "./style/panels.css";
import "./style/strip.css";
import "./style/time.css";
import "./style/phone.css";
import {Api} from "./api";
import {App, FALLBACK} from "./app";
import {LiveMap} from "./map/map";
import {State} from "./state";
import {Stats} from "./stats";
import {Themes} from "./theme";
import {browserTransports} from "./transport";
import {buildPage} from "./page";
import {parseHash} from "./url";

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
const app = new App(state, api, map, browserTransports(api), url, (work) => stats.spend(work));
buildPage(app, phone);

declare global {
  interface Window {
    /** For measuring and testing. */
    tidewheel: {stats: Stats; view: () => Record<string, number>; drawn: () => Record<string, number>; app: App};
  }
}
window.tidewheel = {stats, view: () => app.store.counts(), drawn: () => map.counts(), app};

window.addEventListener("hashchange", () => {
  // Only a reader who types or pastes another address gets here: all that is in it is taken anew.
  location.reload();
});
void app.start();
