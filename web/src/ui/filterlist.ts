import {formatField} from "../format";
import {isEmpty, only, toggled, type Known} from "../filters";
import type {State} from "../state";
import {fill, h} from "./dom";

/** So many values are offered as buttons; more are searched for. */
const BUTTONS = 9;

/** The filters: a field for each that some layer lets itself be filtered by. */
export class FilterList {
  readonly root = h("div", {className: "filter-list", data: {test: "filters"}});
  #shown = "";

  constructor(
    private readonly state: State,
    private readonly known: Known,
  ) {
    state.filters.subscribe(() => this.render());
    state.layers.subscribe(() => this.render());
    this.render();
  }

  render(): void {
    const filters = this.state.filters.value;
    const described = new Set(this.state.layers.value.flatMap((layer) => layer.filters));
    // A field of which no value was met yet has nothing to choose from.
    const fields = [...described].filter((field) => this.known.of(field).length > 0 || (filters[field] ?? []).length > 0);
    // New values come all the time; what is open under the reader's fingers is replaced only when it would differ.
    const wanted = JSON.stringify([fields.map((field) => [field, this.known.of(field)]), filters]);
    if (wanted === this.#shown) return;
    this.#shown = wanted;
    const active = document.activeElement as HTMLElement | null;
    const focus = active && this.root.contains(active) ? [active.dataset["focus"], (active as HTMLInputElement).value] : null;
    if (fields.length === 0) return this.root.replaceChildren();
    const clear = h("button", {type: "button", className: "quiet", onclick: () => this.state.filters.set({}), data: {test: "clear-filters"}}, "Clear");
    fill(
      this.root,
      h("div", {className: "row"}, h("h2", {}, "Filters"), !isEmpty(filters) && clear),
      ...fields.map((field) => this.#field(field)),
    );
    if (!focus?.[0]) return;
    const again = this.root.querySelector<HTMLElement>(`[data-focus="${CSS.escape(focus[0])}"]`);
    if (again instanceof HTMLInputElement && again.type === "text") again.value = focus[1] ?? "";
    again?.focus();
  }

  #field(field: string): HTMLElement {
    const chosen = this.state.filters.value[field] ?? [];
    const values = [...new Set([...this.known.of(field), ...chosen])];
    const label = formatField(field);
    const few = values.length <= BUTTONS;
    const chips = (few ? values : chosen).map((value) => {
      const on = chosen.includes(value);
      const chip = h("button", {type: "button", className: on ? "chip on" : "chip", data: {focus: `${field}=${value}`, value}}, value);
      chip.setAttribute("aria-pressed", String(on));
      chip.onclick = () => this.state.filters.set(toggled(this.state.filters.value, field, value));
      return chip;
    });
    const search = !few && this.#search(field, label, values);
    return h("fieldset", {data: {filter: field}}, h("legend", {}, label), h("div", {className: "chips"}, ...chips, search));
  }

  #search(field: string, label: string, values: string[]): HTMLElement {
    const list = h("datalist", {id: `values-${field}`}, ...values.slice(0, 500).map((value) => h("option", {value})));
    const input = h("input", {type: "text", placeholder: `Add ${label}…`, autocomplete: "off", data: {focus: field}, aria: {label: `Add ${label}`}});
    input.setAttribute("list", list.id);
    input.onchange = () => {
      const value = input.value.trim();
      input.value = "";
      if (value) this.state.filters.set(only(this.state.filters.value, field, [...new Set([...(this.state.filters.value[field] ?? []), value])]));
    };
    return h("span", {className: "search"}, input, list);
  }
}
