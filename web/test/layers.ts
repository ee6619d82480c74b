import type {Layer} from "../src/contract";

/** A description such as a server gives; what matters to a test is named by it. */
export function layer(described: Partial<Layer> = {}): Layer {
  return {
    name: "counts",
    title: "Counts",
    topic: "analytics.counts",
    key: ["cell"],
    geometry: {kind: "cell", cell: "cell"},
    show: "cells",
    value: {field: "n", label: "things"},
    scale: {kind: "sequential", domain: [0, 10]},
    figures: [{field: "n", label: "things"}],
    filters: [],
    expiry: 10_000,
    on: true,
    ...described,
  };
}
