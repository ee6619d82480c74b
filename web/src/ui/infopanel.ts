import type {State} from "../state";
import {TABS, type Tab} from "../url";
import {h, icon, iconButton, setText, type IconName} from "./dom";

export const TAB_LABELS: Record<Tab, {label: string; icon: IconName}> = {
  details: {label: "Details", icon: "details"},
  alerts: {label: "Alerts", icon: "alert"},
  tables: {label: "Tables", icon: "table"},
  status: {label: "Status", icon: "status"},
};

/** The panel at the side, with a tab for each of its contents. */
export class InfoPanel {
  #tabs = new Map<Tab, HTMLButtonElement>();
  #panes = new Map<Tab, HTMLElement>();
  #badge = h("span", {className: "badge", hidden: true});

  constructor(
    private readonly root: HTMLElement,
    /** What is there to open it when it is closed. */
    private readonly opener: HTMLElement,
    private readonly state: State,
    contents: Record<Tab, HTMLElement>,
  ) {
    for (const name of TABS) {
      const {label, icon: symbol} = TAB_LABELS[name];
      const tab = h("button", {type: "button", role: "tab", id: `tab-${name}`, data: {tab: name}}, icon(symbol), h("span", {}, label), name === "alerts" && this.#badge);
      tab.setAttribute("aria-controls", `pane-${name}`);
      tab.onclick = () => state.tab.set(name);
      tab.onkeydown = (event) => this.#move(event, name);
      this.#tabs.set(name, tab);
      this.#panes.set(name, h("div", {id: `pane-${name}`, role: "tabpanel", className: "pane", aria: {labelledby: tab.id}}, contents[name]));
    }
    root.append(
      h("div", {className: "tabs"}, h("div", {role: "tablist", aria: {label: "Panels"}}, ...this.#tabs.values()), iconButton("close", "Close (Escape)", () => state.tab.set(null), {test: "close-info"})),
      ...this.#panes.values(),
    );
    state.tab.watch(() => this.#show());
  }

  /** How many alerts are fresh. */
  badge(count: number): void {
    this.#badge.hidden = count === 0;
    setText(this.#badge, String(count));
  }

  #show(): void {
    const open = this.state.tab.value;
    const active = document.activeElement;
    const inside = this.root.contains(active);
    this.opener.hidden = open !== null;
    this.root.classList.toggle("open", open !== null);
    // What is closed is out of the way of the keyboard and of screen readers as well.
    this.root.inert = open === null;
    for (const name of TABS) {
      const selected = name === open;
      this.#tabs.get(name)!.setAttribute("aria-selected", String(selected));
      this.#tabs.get(name)!.tabIndex = selected ? 0 : -1;
      this.#panes.get(name)!.hidden = !selected;
    }
    // Who works by keyboard goes on from here: what had the focus may be hidden now.
    if (inside && open === null) this.opener.focus();
    else if (open !== null && (active === this.opener || (inside && active?.closest("[hidden]")))) this.#tabs.get(open)!.focus();
  }

  #move(event: KeyboardEvent, from: Tab): void {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    event.preventDefault();
    event.stopPropagation();
    const next = TABS[(TABS.indexOf(from) + by + TABS.length) % TABS.length]!;
    this.state.tab.set(next);
    this.#tabs.get(next)!.focus();
  }
}
