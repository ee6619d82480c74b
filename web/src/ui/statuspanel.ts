import type {Status} from "../contract";
import {formatDuration, formatNumber, formatRate, formatTime} from "../format";
import type {State} from "../state";
import {h, setText} from "./dom";
import {Plot, type PlotPoint} from "./plot";

const KEPT = 600;

/** How the stream is: throughput and latency over the last minutes, and every topic. */
export class StatusPanel {
  readonly root = h("div", {className: "status-panel", data: {test: "status"}});
  #events: PlotPoint[] = [];
  #latency: PlotPoint[] = [];
  #eventsPlot = new Plot();
  #latencyPlot = new Plot();
  #facts = h("dl", {className: "figures"});
  #held = h("ul", {className: "held", hidden: true, data: {test: "held"}, aria: {label: "Watermarks that are held"}});
  #topics = h("tbody", {});

  constructor(private readonly state: State) {
    const table = h(
      "table",
      {},
      h("caption", {}, "Topics"),
      h("thead", {}, h("tr", {}, ...["topic", "watermark", "per s", "records"].map((label, index) => h("th", {scope: "col", className: index > 0 ? "number" : ""}, label)))),
      this.#topics,
    );
    this.root.append(
      this.#held,
      h("h4", {}, "Events per second"),
      this.#eventsPlot.root,
      h("h4", {}, "Median latency, ms"),
      this.#latencyPlot.root,
      this.#facts,
      h("div", {className: "scroll", tabIndex: 0, role: "region", aria: {label: "Topics"}}, table),
    );
    state.status.watch((status) => status && this.#take(status));
    state.tab.subscribe(() => this.#show());
    state.themes.theme.subscribe(() => {
      this.#eventsPlot.restyle();
      this.#latencyPlot.restyle();
    });
  }

  #take(status: Status): void {
    this.#events.push({t: status.now, v: status.in_rate});
    if (status.latency) this.#latency.push({t: status.now, v: status.latency.p50});
    for (const series of [this.#events, this.#latency]) if (series.length > KEPT) series.shift();
    this.#show();
  }

  #show(): void {
    const status = this.state.status.value;
    if (!status || this.state.tab.value !== "status") return;
    this.#eventsPlot.show(this.#events, {label: "Events per second", height: 96});
    this.#latencyPlot.show(this.#latency, {label: "Latency", unit: "ms", height: 96});
    const facts: [string, string][] = [
      ["event time", status.event_time === null ? "–" : formatTime(status.event_time)],
      ["watermark", status.watermark === null ? "–" : formatTime(status.watermark)],
      ["lag", formatDuration(status.lag)],
      ["records behind", status.behind === null ? "–" : formatNumber(status.behind)],
      ["latency p50 / p90 / p99", status.latency ? [status.latency.p50, status.latency.p90, status.latency.p99].map((ms) => formatDuration(ms)).join(" / ") : "–"],
      ["late events", formatNumber(status.late)],
      ["dead letters", formatNumber(status.dead)],
      ["unreadable results", formatNumber(status.bad)],
      ["viewers", formatNumber(status.clients)],
    ];
    if (this.#facts.childElementCount !== facts.length) {
      this.#facts.replaceChildren(...facts.map(([label]) => h("div", {}, h("dt", {}, label), h("dd", {}))));
    }
    facts.forEach(([, value], index) => setText(this.#facts.children[index]!.lastElementChild!, value));
    const held = status.held ?? [];
    this.#held.hidden = held.length === 0;
    this.#held.replaceChildren(
      ...held.map(({job, text, by}) =>
        h("li", {title: by.map(({topic, partition, since}) => `${topic}/${partition} since ${formatTime(since)}`).join("\n")}, h("strong", {}, job), ` watermark ${text}`),
      ),
    );
    const topics = Object.entries(status.topics ?? {}).sort(([a], [b]) => a.localeCompare(b));
    this.#topics.replaceChildren(
      ...topics.map(([topic, {watermark, rate, count}]) =>
        h(
          "tr",
          {},
          h("th", {scope: "row"}, topic),
          h("td", {className: "number"}, watermark ? formatTime(watermark) : "–"),
          h("td", {className: "number"}, formatRate(rate)),
          h("td", {className: "number"}, count === undefined ? "–" : formatNumber(count)),
        ),
      ),
    );
  }
}
