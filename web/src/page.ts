import type {App} from "./app";
import type {Alert} from "./contract";
import {atRestSince} from "./rest";
import {AlertList} from "./ui/alertlist";
import {Board} from "./ui/board";
import {nameOf, placeOf} from "./ui/describe";
import {Details} from "./ui/details";
import {dock} from "./ui/dock";
import {h, iconButton, setText} from "./ui/dom";
import {FilterList} from "./ui/filterlist";
import {helpDialog} from "./ui/help";
import {InfoPanel} from "./ui/infopanel";
import {listenForKeys, type Shortcuts} from "./ui/keys";
import {LayerList} from "./ui/layerlist";
import {MapFrame} from "./ui/mapframe";
import {watchPointer} from "./ui/pointer";
import {StatusPanel} from "./ui/statuspanel";
import {Strip} from "./ui/strip";
import {Tables} from "./ui/tables";
import {TimeBar} from "./ui/timebar";
import {Tooltip} from "./ui/tooltip";

/** Puts the parts of the page together. */
export function buildPage(app: App, phone: MediaQueryList): void {
  const {state, store, map, travel, eventClock, alerts} = app;
  const at = (id: string): HTMLElement => document.getElementById(id)!;
  const help = helpDialog();
  const showTab = (tab: NonNullable<typeof state.tab.value>): void => state.tab.set(state.tab.value === tab ? null : tab);

  new Strip(at("strip"), state, travel, eventClock, {
    help: () => help.showModal(),
    retry: () => app.live.retryNow(),
    status: () => showTab("status"),
  });

  const open = (layer: string, key: string): void => {
    state.selected.set({layer, key});
    state.tab.set("details");
  };
  const openAlert = (alert: Alert): void => {
    const place = placeOf(alert);
    if (place) map.flyTo(...place);
    state.selected.set({layer: alert.layer, key: alert.k, t: alert.t});
    if (phone.matches) state.tab.set(null);
    else state.tab.set("details");
  };

  const board = new Board(at("board"), app, open);
  const layerList = new LayerList(state, store, {
    showTable: (layer) => {
      if (state.mapped.value === false) {
        if (phone.matches) state.layersOpen.set(false);
        return board.goTo(layer);
      }
      state.table.set(layer);
      state.tab.set("tables");
    },
  });
  const filterList = new FilterList(state, app.known);
  app.onKnown = () => filterList.render();
  const layersPanel = at("layers");
  layersPanel.append(iconButton("close", "Close (L)", () => state.layersOpen.set(false), {test: "close-layers"}), layerList.root, filterList.root);
  const reopen = h("button", {type: "button", className: "reopen", title: "Layers and filters (L)", data: {test: "open-layers"}, onclick: () => state.layersOpen.set(true)}, "Layers");
  const reopenInfo = h("button", {type: "button", className: "reopen right", title: "Alerts (A)", data: {test: "open-info"}, onclick: () => state.tab.set(state.mapped.value === false ? "status" : "alerts")}, "Alerts");
  document.body.insertBefore(reopen, layersPanel);
  document.body.insertBefore(reopenInfo, at("info"));
  state.layersOpen.watch((shown) => {
    const [inside, outside] = [layersPanel.contains(document.activeElement), document.activeElement === reopen];
    layersPanel.classList.toggle("open", shown);
    layersPanel.inert = !shown;
    reopen.hidden = shown;
    // Who closes or opens it by keyboard goes on from there.
    if (inside && !shown) reopen.focus();
    if (outside && shown) layersPanel.focus();
  });
  at("skip").onclick = (event) => {
    // The address holds what is seen, and no places of the page.
    event.preventDefault();
    state.layersOpen.set(true);
    layersPanel.focus();
  };

  const alertList = new AlertList(alerts, state, travel, eventClock, openAlert);
  const details = new Details(app, {
    flyTo: (lon, lat) => map.flyTo(lon, lat),
    path: (path) => map.showPath(path),
  });
  const info = new InfoPanel(at("info"), reopenInfo, state, {
    details: details.root,
    alerts: alertList.root,
    tables: new Tables(state, store, open).root,
    status: new StatusPanel(state).root,
  });
  new TimeBar(at("time"), travel, eventClock, () => alertList.shown().map(({t}) => t), () => (state.status.value ? atRestSince(state.status.value) : null));
  dock(at("dock"), state, phone);

  // What there is to be seen beside the map or the board before the reader has chosen anything.
  let untouched = state.tab.value === "alerts";
  state.tab.subscribe(() => (untouched = false));
  state.mapped.watch((mapped) => {
    document.documentElement.dataset["view"] = mapped === null ? "waiting" : mapped ? "map" : "board";
    setText(reopenInfo, mapped === false ? "Status" : "Alerts");
    reopenInfo.title = mapped === false ? "Status (S)" : "Alerts (A)";
    const alerted = state.layers.value.some(({show}) => show === "alerts");
    if (mapped === null || !untouched) return;
    state.tab.set(mapped || alerted ? "alerts" : null);
    untouched = true;
  });

  at("board").tabIndex = -1;
  state.tab.subscribe((tab) => {
    // Who closes the panel by keyboard goes on from there.
    if (tab === null && state.mapped.value === false && document.activeElement === document.body) at("board").focus({preventScroll: true});
  });

  const mapRoot = at("map");
  const home = (): void => map.flyTo(app.home.lon, app.home.lat, app.home.zoom);
  const frame = new MapFrame(mapRoot, map, home);
  app.onBackground = ({attribution}) => frame.attribute(attribution || "Land and water © OpenStreetMap contributors (ODbL)");
  const tooltip = new Tooltip(state, store);
  mapRoot.append(tooltip.root);
  watchPointer(mapRoot, map, {
    hover: (pointed) => {
      map.hover(pointed);
      tooltip.show(pointed);
    },
    click: (pointed) => {
      tooltip.show(null); // the details tell it, and may open over it
      if (pointed) open(pointed.layer, pointed.key);
      else deselect();
    },
  });

  const deselect = (): void => {
    state.selected.set(null);
    if (state.tab.value === "details") state.tab.set(phone.matches ? null : "alerts");
  };

  const countFresh = (): void => info.badge(alertList.shown().filter(({t}) => eventClock.time - t < 30_000).length);
  const announcer = at("announcer");
  app.onAlerts = (fresh) => {
    alertList.render();
    countFresh();
    const heard = fresh.filter(({layer}) => state.on.value.has(layer));
    if (heard.length === 0) return;
    const first = alerts.list().find(({layer, k}) => layer === heard[0]!.layer && k === heard[0]!.key);
    const layer = first && state.layer(first.layer);
    if (first && layer) setText(announcer, `${layer.title}: ${nameOf(first, layer)}${heard.length > 1 ? ` and ${heard.length - 1} more` : ""}`);
  };
  window.setInterval(countFresh, 5000);
  state.link.subscribe((link) => {
    if (link.kind === "waiting") setText(announcer, "The connection was lost. Reconnecting.");
    if (link.kind === "open") setText(announcer, "Connected.");
  });

  const toast = h("div", {className: "toast", role: "alert", hidden: true});
  document.body.append(toast);
  state.problem.watch((problem) => {
    toast.hidden = problem === null;
    setText(toast, problem ?? "");
    if (problem) window.setTimeout(() => state.problem.value === problem && state.problem.set(null), 8000);
  });

  const digits: Shortcuts = Object.fromEntries(
    Array.from({length: 9}, (_, index) => [
      String(index + 1),
      () => {
        const layer = state.layers.value[index];
        if (layer) state.toggleLayer(layer.name);
      },
    ]),
  );
  listenForKeys({
    ...digits,
    " ": () => travel.toggle(),
    ",": () => travel.step(-60_000),
    ".": () => travel.step(60_000),
    Home: () => travel.live(),
    l: () => state.layersOpen.set(!state.layersOpen.value),
    a: () => showTab("alerts"),
    t: () => showTab("tables"),
    s: () => showTab("status"),
    r: () => state.trails.set(!state.trails.value),
    d: () => state.themes.toggle(),
    "0": home,
    "+": () => map.zoomBy(1),
    "=": () => map.zoomBy(1),
    "-": () => map.zoomBy(-1),
    "?": () => help.showModal(),
    Escape: () => {
      if (state.selected.value) deselect();
      else if (state.tab.value) state.tab.set(null);
      else if (phone.matches) state.layersOpen.set(false);
      else map.hover(null);
    },
  });
}
