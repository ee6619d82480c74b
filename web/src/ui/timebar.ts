import type {EventClock} from "../eventclock";
import {formatDuration, formatTime} from "../format";
import {HOUR, type TimeTravel} from "../timetravel";
import {h, icon, iconButton, setText} from "./dom";

const SPEEDS = [1, 2, 5, 10, 30];

/** Pause, rewind over the last hour, play from there, back to live. */
export class TimeBar {
  #play = h("button", {type: "button", className: "icon-button play", data: {test: "play"}});
  #slider = h("input", {type: "range", min: "0", max: String(HOUR), step: "1000", value: String(HOUR), data: {test: "slider"}, aria: {label: "Time within the last hour"}});
  #ticks = h("div", {className: "ticks", aria: {hidden: "true"}});
  /** No `output`: screen readers would tell of it every second. */
  #label = h("span", {className: "moment", data: {test: "moment"}});
  #speed = h("button", {type: "button", className: "quiet speed", title: "How fast to play", data: {test: "speed"}}, "1×");
  #liveLabel = h("span", {}, "Live");
  #live = h("button", {type: "button", className: "live", data: {test: "live"}}, h("i", {}), this.#liveLabel);
  #dragging = false;

  constructor(
    root: HTMLElement,
    private readonly travel: TimeTravel,
    private readonly eventClock: EventClock,
    /** When alerts happened, for the ticks above the slider. */
    private readonly alerts: () => number[],
    /** Since when nothing has come to the log, if it is at rest. */
    private readonly restingSince: () => number | null = () => null,
  ) {
    this.#play.onclick = () => travel.toggle();
    this.#live.onclick = () => travel.live();
    this.#slider.oninput = () => {
      this.#dragging = true;
      travel.seek(travel.range[0] + Number(this.#slider.value));
    };
    this.#slider.onchange = () => (this.#dragging = false);
    this.#speed.onclick = () => {
      const past = travel.past;
      if (past) travel.play(SPEEDS[(SPEEDS.indexOf(past.speed) + 1) % SPEEDS.length]);
    };
    root.append(
      iconButton("back", "A minute back (,)", () => travel.step(-60_000), {test: "back"}),
      this.#play,
      iconButton("forward", "A minute forward (.)", () => travel.step(60_000), {test: "forward"}),
      h("div", {className: "track"}, this.#ticks, this.#slider, h("div", {className: "ends"}, h("span", {}, "1 h ago"), h("span", {}, "30 min"), h("span", {}, "now"))),
      this.#label,
      this.#speed,
      this.#live,
    );
    travel.moment.watch(() => this.#show());
    eventClock.shown.subscribe(() => this.#tell());
    window.setInterval(() => this.#show(), 1000);
  }

  #show(): void {
    const past = this.travel.past;
    const [earliest, latest] = this.travel.range;
    const at = past?.at ?? latest;
    if (!this.#dragging) this.#slider.value = String(Math.max(0, at - earliest));
    this.#slider.style.setProperty("--at", `${(100 * Math.max(0, at - earliest)) / HOUR}%`);
    const running = !past || past.playing;
    const label = running ? "Pause (Space)" : "Play (Space)";
    if (this.#play.title !== label) {
      this.#play.title = label;
      this.#play.setAttribute("aria-label", running ? "Pause" : "Play");
      this.#play.replaceChildren(icon(running ? "pause" : "play"));
    }
    this.#live.setAttribute("aria-pressed", String(!past));
    const resting = !past && this.restingSince() !== null;
    setText(this.#liveLabel, resting ? "At rest" : "Live");
    this.#live.classList.toggle("resting", resting);
    this.#live.title = resting ? "Nothing new comes to the log. What comes next is shown at once" : "Back to live (Home)";
    this.#label.classList.toggle("loading", past?.loading ?? false);
    this.#label.classList.toggle("bad", Boolean(past?.error));
    setText(this.#speed, `${past?.speed ?? 1}×`);
    this.#speed.hidden = !past;
    this.#tell();
    this.#showTicks(this.eventClock.at(earliest), this.eventClock.at(latest));
  }

  #tell(): void {
    const past = this.travel.past;
    const time = this.eventClock.shown.value === null ? "––:––:––" : formatTime(this.eventClock.shown.value);
    const ago = past ? this.travel.range[1] - past.at : 0;
    const text = past ? (past.error ?? `${time} · ${ago < 2000 ? "paused" : `${formatDuration(ago)} ago`}`) : time;
    setText(this.#label, text);
    this.#slider.setAttribute("aria-valuetext", past ? text : "live");
  }

  #showTicks(earliest: number, latest: number): void {
    const happened = this.alerts().filter((t) => t >= earliest && t <= latest);
    const places = [...new Set(happened.map((t) => Math.round((1000 * (t - earliest)) / (latest - earliest)) / 10))];
    const wanted = places.slice(0, 200).join(" ");
    if (this.#ticks.dataset["places"] === wanted) return;
    this.#ticks.dataset["places"] = wanted;
    this.#ticks.replaceChildren(...places.slice(0, 200).map((place) => h("i", {style: `left:${place}%`})));
  }
}
