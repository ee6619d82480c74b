import type {Pointed} from "../map/map";
import type {State} from "../state";
import type {Store} from "../store";
import {nameOf, summaryOf, timingOf, valueIn} from "./describe";
import {fill, h} from "./dom";

/** What is under the pointer, in a few words beside it. */
export class Tooltip {
  readonly root = h("div", {className: "tooltip", hidden: true, data: {test: "tooltip"}, aria: {hidden: "true"}});

  constructor(
    private readonly state: State,
    private readonly store: Store,
  ) {}

  show(pointed: Pointed | null): void {
    const layer = pointed && this.state.layer(pointed.layer);
    const item = pointed && this.store.get(pointed.layer, pointed.key);
    this.root.hidden = !item;
    if (!pointed || !layer || !item) return;
    const {colours, main} = this.state.coloursOf(layer);
    const timing = timingOf(item);
    fill(
      this.root,
      h("span", {className: "kicker"}, h("i", {className: "dot", style: `background:${colours.css(colours.valueOf(item, main))}`}), layer.title),
      h("b", {}, valueIn(item, layer) ?? nameOf(item, layer)),
      h("small", {}, layer.geometry.kind === "point" ? nameOf(item, layer) : summaryOf(item, layer, {value: false})),
      timing && timing.label !== "final" && h("em", {className: `timing ${timing.label}`}, timing.label),
    );
    const map = this.root.parentElement!;
    const {left, top, height: room} = map.getBoundingClientRect();
    const {width, height} = this.root.getBoundingClientRect();
    const y = Math.max(8, Math.min(room - height - 8, pointed.y - height / 2));
    // Panels lie over the map, and would cover it.
    const free = (x: number): boolean => [y, y + height].every((corner) => map.contains(document.elementFromPoint(left + x, top + corner)));
    const [right, other] = [pointed.x + 16, pointed.x - 14 - width];
    const x = !free(right + width) && free(other) ? other : right;
    this.root.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }
}
