import {alertId, type AlertLog} from "../alerts";
import type {Alert} from "../contract";
import type {EventClock} from "../eventclock";
import {isEmpty, passes} from "../filters";
import {formatAge, formatTime} from "../format";
import type {State} from "../state";
import type {TimeTravel} from "../timetravel";
import {nameOf, summaryOf} from "./describe";
import {h, setText, throttled} from "./dom";

const SHOWN = 60;

/** What happened in the last hour; a click flies there. */
export class AlertList {
  readonly root = h("div", {className: "alert-list", data: {test: "alerts"}});
  readonly render: () => void;
  #rows = new Map<string, {row: HTMLElement; age: HTMLElement; t: number}>();
  #list = h("ol", {});
  #empty = h("p", {className: "empty"}, "No alerts in the last hour.");

  constructor(
    private readonly log: AlertLog,
    private readonly state: State,
    private readonly travel: TimeTravel,
    private readonly eventClock: EventClock,
    private readonly open: (alert: Alert) => void,
  ) {
    this.root.append(this.#empty, this.#list);
    this.render = throttled(() => this.#render(), 100);
    state.layers.subscribe(this.render);
    state.on.subscribe(this.render);
    state.filters.subscribe(this.render);
    travel.moment.subscribe(this.render);
    window.setInterval(() => this.#age(), 1000);
  }

  /** Those that count now: of layers that are on, passing the filters, and that had happened at the time that is shown. */
  shown(): Alert[] {
    const until = this.travel.past ? this.eventClock.time : Infinity;
    const {on, filters} = this.state;
    return this.log.list(until).filter((alert) => {
      const layer = this.state.layer(alert.layer);
      return layer !== undefined && on.value.has(alert.layer) && passes(alert, layer, filters.value);
    });
  }

  #render(): void {
    const alerts = this.shown().slice(0, SHOWN);
    const heard = this.state.layers.value.some(({name, show}) => show === "alerts" && this.state.on.value.has(name));
    const none = isEmpty(this.state.filters.value) ? "No alerts in the last hour." : "No alerts in the last hour that pass the filters.";
    setText(this.#empty, heard ? none : "No layer with alerts is on.");
    this.#empty.hidden = alerts.length > 0;
    const wanted = new Map(alerts.map((alert) => [alertId(alert.layer, alert), alert]));
    for (const [id, {row}] of this.#rows) {
      if (wanted.has(id)) continue;
      row.remove();
      this.#rows.delete(id);
    }
    let before: Element | null = this.#list.firstElementChild;
    for (const [id, alert] of wanted) {
      const known = this.#rows.get(id);
      if (known && known.row === before) {
        before = before.nextElementSibling;
        continue;
      }
      const entry = known ?? this.#row(id, alert);
      if (!entry) continue;
      this.#list.insertBefore(entry.row, before);
    }
    this.#age();
  }

  #row(id: string, alert: Alert): {row: HTMLElement; age: HTMLElement; t: number} | null {
    const layer = this.state.layer(alert.layer);
    if (!layer) return null;
    const {colours, main} = this.state.coloursOf(layer);
    const age = h("span", {className: "age"});
    const button = h(
      "button",
      {type: "button", onclick: () => this.open(alert)},
      h("i", {className: "beacon", style: `--colour:${colours.css(colours.valueOf(alert, main))}`}),
      h("span", {className: "what"}, h("b", {}, layer.title), h("span", {}, nameOf(alert, layer)), h("small", {}, summaryOf(alert, layer, {most: 2}))),
      h("span", {className: "when"}, h("time", {}, formatTime(alert.t)), age),
    );
    const entry = {row: h("li", {data: {alert: id, layer: alert.layer, key: alert.k}}, button), age, t: alert.t};
    this.#rows.set(id, entry);
    return entry;
  }

  #age(): void {
    const now = this.eventClock.time;
    for (const {age, t, row} of this.#rows.values()) {
      setText(age, formatAge(Math.max(0, now - t)));
      row.classList.toggle("fresh", now - t < 30_000);
    }
  }
}
