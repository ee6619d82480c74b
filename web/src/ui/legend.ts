import type {Layer} from "../contract";
import type {Colours} from "../scale";
import {h} from "./dom";

/** What the colours of a layer mean. */
export function legend(layer: Layer, colours: Colours): HTMLElement {
  const label = [colours.colouring.value?.label, colours.colouring.value?.unit].filter(Boolean).join(", ");
  if (colours.kind === "categorical") {
    const entries = colours.entries.map(({label: name, colour}) => h("li", {}, h("i", {className: "dot", style: `background:${colour}`}), name));
    return h("div", {className: "legend", data: {test: "legend"}}, h("ul", {className: "categories", aria: {label: `Colours by ${label}`}}, ...entries));
  }
  if (!colours.field) return h("div", {className: "legend", data: {test: "legend"}});
  const {background, marks} = colours.gradient;
  return h(
    "div",
    {className: "legend", data: {test: "legend"}},
    h("div", {className: "ramp", style: `background:${background}`}),
    h("div", {className: "marks"}, ...marks.map((mark) => h("span", {}, mark))),
    h("span", {className: "unseen"}, `${layer.title}: colours from ${marks[0]} to ${marks[2]}, ${label}`),
  );
}
