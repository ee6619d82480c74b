import type {Layer as DeckLayer} from "@deck.gl/core";
import type {Layer} from "../contract";
import type {Colours} from "../scale";
import {ArrowsLayer} from "./arrows";
import {Cells} from "./cells";
import {Flows} from "./flows";
import type {TidalProps} from "./gpu";
import {HexagonsLayer} from "./hexagons";
import type {Instances} from "./instances";
import {MarkersLayer} from "./markers";
import {Points} from "./points";
import {PulsesLayer} from "./pulses";

/** How a layer of results is drawn: decided by its description alone. */
export type Drawing =
  | {kind: "cells"; instances: Cells}
  | {kind: "arrows"; instances: Flows}
  | {kind: "markers"; instances: Points}
  | {kind: "pulses"; instances: Points};

export type AnyInstances = Instances<never>;

/** Null for results without a place. */
export function drawingOf(layer: Layer, colours: Colours, main: boolean): Drawing | null {
  switch (layer.geometry.kind) {
    case "cell":
      return {kind: "cells", instances: new Cells(colours, main)};
    case "edge":
      return {kind: "arrows", instances: new Flows(colours, main)};
    case "point":
      return {kind: layer.show === "alerts" ? "pulses" : "markers", instances: new Points(colours, main)};
    case "none":
      return null;
  }
}

/** Hexagons of several layers nest in each other, so that each remains to be seen. */
const FILLS = [0.95, 0.56, 0.3];

/** The layer that draws what the instances hold now. */
export function deckLayerOf(name: string, drawing: Drawing, props: Omit<TidalProps, "data" | "base" | "id">, nesting: number): DeckLayer {
  const {instances} = drawing;
  const common = {...props, id: name, data: instances.columns.data(), base: instances.base};
  switch (drawing.kind) {
    case "cells":
      return new HexagonsLayer({...common, fill: FILLS[Math.min(nesting, FILLS.length - 1)]!});
    case "arrows":
      return new ArrowsLayer(common);
    case "markers":
      return new MarkersLayer(common);
    case "pulses":
      return new PulsesLayer(common);
  }
}
