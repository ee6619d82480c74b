import type {LiveMap} from "../map/map";
import {scaleBar} from "../format";
import {h, iconButton, setText} from "./dom";

/** What stands on the map's edge: zoom, scale bar, attribution. */
export class MapFrame {
  #attribution = h("span", {className: "attribution", data: {test: "attribution"}});
  #bar = h("span", {className: "bar"});
  #length = h("span", {});

  constructor(root: HTMLElement, map: LiveMap, home: () => void) {
    root.append(
      h(
        "div",
        {className: "zoom", role: "group", aria: {label: "Zoom"}},
        iconButton("plus", "Zoom in (+)", () => map.zoomBy(1), {test: "zoom-in"}),
        iconButton("minus", "Zoom out (−)", () => map.zoomBy(-1), {test: "zoom-out"}),
        iconButton("home", "The whole region (0)", home, {test: "home"}),
      ),
      h("div", {className: "foot"}, h("span", {className: "scale", aria: {hidden: "true"}}, this.#bar, this.#length), this.#attribution),
    );
    map.camera.watch(() => {
      const {label, width} = scaleBar(map.metresPerPixel, 110);
      setText(this.#length, label);
      this.#bar.style.width = `${Math.round(width)}px`;
    });
  }

  attribute(text: string): void {
    setText(this.#attribution, text);
  }
}
