import type {State} from "../state";
import {TABS, type Tab} from "../url";
import {h, icon} from "./dom";
import {TAB_LABELS} from "./infopanel";

/** On a phone: what to open as a sheet from below. One at a time. */
export function dock(root: HTMLElement, state: State, phone: MediaQueryList): void {
  const button = (label: string, symbol: Parameters<typeof icon>[0], isOpen: () => boolean, toggle: () => void): HTMLButtonElement => {
    const element = h("button", {type: "button", onclick: toggle, data: {dock: label.toLowerCase()}}, icon(symbol), h("span", {}, label));
    const show = (): void => element.setAttribute("aria-pressed", String(isOpen()));
    state.tab.watch(show);
    state.layersOpen.watch(show);
    return element;
  };
  const toggleTab = (name: Tab): void => state.tab.set(state.tab.value === name ? null : name);
  root.append(
    button("Layers", "layers", () => state.layersOpen.value, () => state.layersOpen.set(!state.layersOpen.value)),
    ...TABS.map((name) => button(TAB_LABELS[name].label, TAB_LABELS[name].icon, () => state.tab.value === name, () => toggleTab(name))),
  );
  state.layersOpen.subscribe((open) => open && phone.matches && state.tab.set(null));
  state.tab.subscribe((tab) => tab && phone.matches && state.layersOpen.set(false));
}
