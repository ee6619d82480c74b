import type {EventClock} from "../eventclock";
import {formatDate, formatDuration, formatMoment, formatNumber, formatRate, formatTime} from "../format";
import {atRestSince} from "../rest";
import type {State} from "../state";
import type {TimeTravel} from "../timetravel";
import {h, icon, iconButton, setText} from "./dom";

/** The strip on top: what time it is in the stream, and how well the stream flows. */
export class Strip {
  #clock = h("time", {className: "clock", data: {test: "clock"}}, "––:––:––");
  #date = h("span", {className: "date"});
  #watermark = h("span", {className: "watermark", data: {test: "watermark"}});
  #metrics = {
    events: metric("Events", "events", "Events that came in, per second"),
    results: metric("Results", "results", "Results that came out, per second"),
    latency: metric("Latency", "latency", "From an event's arrival to its result: half of all are faster than the first, 99 of 100 than the second"),
    late: metric("Late", "late", "Events that came too late for their window"),
    dead: metric("Dead letters", "dead", "Messages that could not be read"),
  };
  #link = h("button", {type: "button", className: "link", data: {test: "connection", state: "connecting"}}, h("i", {}), h("span", {}, "Connecting"));
  #starting = h("p", {className: "starting", hidden: true, data: {test: "starting"}});
  #theme = h("button", {type: "button", className: "icon-button", data: {test: "theme"}});
  #countdown: number | null = null;

  constructor(
    root: HTMLElement,
    private readonly state: State,
    travel: TimeTravel,
    private readonly eventClock: EventClock,
    actions: {help: () => void; retry: () => void; status: () => void},
  ) {
    const metrics = h(
      "button",
      {type: "button", className: "metrics", title: "Show the status of all topics", onclick: actions.status},
      ...Object.values(this.#metrics).map(({root: part}) => part),
    );
    root.append(
      h("div", {className: "brand"}, logo(), h("h1", {}, "Tidewheel")),
      h("div", {className: "now"}, this.#clock, h("div", {className: "sub"}, this.#date, this.#watermark)),
      metrics,
      this.#starting,
      h("div", {className: "actions"}, this.#link, this.#theme, iconButton("help", "Keyboard and help (?)", actions.help, {test: "help"})),
    );
    this.#link.onclick = actions.retry;
    this.#theme.onclick = () => state.themes.toggle();
    state.themes.theme.watch((theme) => {
      const other = theme === "dark" ? "light" : "dark";
      this.#theme.replaceChildren(icon(theme === "dark" ? "sun" : "moon"));
      this.#theme.title = `Switch to ${other} (D)`;
      this.#theme.setAttribute("aria-label", `Switch to ${other}`);
    });
    state.status.watch(() => this.#showStatus());
    state.link.watch(() => this.#showLink());
    travel.moment.watch(({kind}) => (document.documentElement.dataset["moment"] = kind));
    eventClock.shown.watch(() => this.#showTime());
  }

  #showTime(): void {
    const time = this.eventClock.shown.value;
    setText(this.#clock, time === null ? "––:––:––" : formatTime(time));
    setText(this.#date, time === null ? "no events yet" : formatDate(time));
  }

  #showStatus(): void {
    const status = this.state.status.value;
    if (!status) return;
    const {events, results, latency, late, dead} = this.#metrics;
    events.set(`${formatRate(status.in_rate)}/s`);
    results.set(`${formatRate(status.result_rate)}/s`);
    latency.set(status.latency ? `${formatDuration(status.latency.p50)} / ${formatDuration(status.latency.p99)}` : "–");
    late.set(formatNumber(status.late));
    dead.set(formatNumber(status.dead));
    dead.root.classList.toggle("bad", status.dead > 0);
    const starting = status.starting ?? [];
    this.#starting.hidden = starting.length === 0;
    setText(this.#starting, starting.map(({text}) => text).join("; "));
    const behind = status.watermark !== null && status.event_time !== null ? status.event_time - status.watermark : null;
    const watermark = behind === null ? "no watermark" : `watermark ${formatDuration(Math.max(0, behind))} behind`;
    const since = atRestSince(status);
    setText(this.#watermark, since === null ? watermark : `at rest since ${formatMoment(since, status.now)}`);
    this.#watermark.title = since === null ? "" : `Nothing new has come to the log for ${formatDuration(status.now - since)}; ${watermark}`;
  }

  #showLink(): void {
    const link = this.state.link.value;
    if (this.#countdown !== null) window.clearInterval(this.#countdown);
    this.#countdown = null;
    const label = this.#link.lastElementChild!;
    this.#link.dataset["state"] = link.kind;
    if (link.kind === "open") {
      setText(label, "Connected");
      this.#link.dataset["transport"] = link.transport;
      this.#link.title = link.transport === "websocket" ? "Connected" : "Connected by server-sent events";
    } else if (link.kind === "connecting") {
      setText(label, link.failures > 0 ? "Reconnecting" : "Connecting");
      this.#link.title = "Waiting for the server";
    } else {
      const until = performance.now() + link.wait;
      const show = (): void => setText(label, `Reconnecting in ${Math.max(1, Math.ceil((until - performance.now()) / 1000))} s`);
      show();
      this.#countdown = window.setInterval(show, 500);
      this.#link.title = "The connection was lost. Click to try at once";
    }
  }
}

function metric(label: string, test: string, title: string): {root: HTMLElement; set: (text: string) => void} {
  const value = h("b", {data: {test}}, "–");
  return {root: h("span", {className: "metric", title}, h("small", {}, label), value), set: (text) => setText(value, text)};
}

function logo(): SVGSVGElement {
  const svg = icon("help");
  svg.setAttribute("viewBox", "0 0 32 32");
  svg.classList.replace("icon", "logo");
  svg.innerHTML =
    '<circle cx="16" cy="16" r="12.5"/><path class="wave" d="M5 18.5c2.75-3 5.5-3 8.25 0s5.5 3 8.25 0c1.6-1.75 3.2-2.5 4.8-2.2"/>' +
    '<path d="M16 3.5v5M7.2 7.2l3.5 3.5M24.8 7.2l-3.5 3.5"/>';
  return svg;
}
