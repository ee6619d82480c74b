import {describe, expect, it} from "vitest";
import type {Item} from "../src/contract";
import {Store, type Change} from "../src/store";

function item(k: string, t: number, extra: Partial<Item> = {}): Item {
  return {k, t, x: t + 10_000, v: 1, f: {}, ...extra};
}

function listening(store: Store): Change[] {
  const changes: Change[] = [];
  store.subscribe((change) => changes.push(change));
  return changes;
}

describe("a snapshot", () => {
  it("is all there is to see", () => {
    const store = new Store();
    store.replace({cells: [item("a", 1), item("b", 1)], other: [item("z", 1)]});
    const changes = listening(store);
    store.replace({cells: [item("b", 2), item("c", 2)]});
    expect([...store.items("cells").keys()]).toEqual(["b", "c"]);
    expect(store.counts()).toEqual({cells: 2, other: 0});
    expect(changes).toContainEqual({layer: "other", changed: [], gone: ["z"], retracted: []});
  });

  it("may show an earlier time than was shown: the reader goes back", () => {
    const store = new Store();
    store.replace({cells: [item("a", 9, {v: 9})]});
    store.replace({cells: [item("a", 3, {v: 3})]});
    expect(store.get("cells", "a")?.v).toBe(3);
  });

  it("that repeats what is shown changes nothing", () => {
    const store = new Store();
    store.replace({cells: [item("a", 1)]});
    const changes = listening(store);
    store.replace({cells: [item("a", 1)]});
    expect(changes).toEqual([]);
  });
});

describe("an update", () => {
  it("replaces with the same or a newer event time, and ignores an older one", () => {
    const store = new Store();
    store.update({cells: [item("a", 5, {v: 5})]});
    store.update({cells: [item("a", 4, {v: 4})]});
    expect(store.get("cells", "a")?.v).toBe(5);
    store.update({cells: [item("a", 5, {v: 6, timing: "ON_TIME"})]});
    expect(store.get("cells", "a")).toMatchObject({v: 6, timing: "ON_TIME"});
  });

  it("takes away what is gone, and tells only of what was there", () => {
    const store = new Store();
    store.update({cells: [item("a", 1)]});
    const changes = listening(store);
    store.update({}, {cells: ["a", "never"]});
    expect(changes).toEqual([{layer: "cells", changed: [], gone: ["a"], retracted: []}]);
    expect(store.items("cells").size).toBe(0);
  });

  it("tells what was retracted from what expired, by the server's clock", () => {
    const store = new Store();
    store.update({cells: [item("over", 1, {x: 100}), item("wrong", 1, {x: 101}), item("again", 1, {x: 101})]});
    const changes = listening(store);
    store.update({cells: [item("again", 2)]}, {cells: ["over", "wrong", "again"]}, 100);
    expect(changes).toMatchObject([{gone: ["over", "wrong"], retracted: ["wrong"]}]);
  });

  it("that brings back what it takes away is a change and no loss", () => {
    const store = new Store();
    store.update({cells: [item("a", 5)]});
    const changes = listening(store);
    store.update({cells: [item("a", 3)]}, {cells: ["a"]});
    expect(changes).toEqual([{layer: "cells", changed: [item("a", 3)], gone: [], retracted: []}]);
  });

  it("tells of a key once, with what came last", () => {
    const store = new Store();
    const changes = listening(store);
    store.update({cells: [item("a", 1, {v: 1}), item("a", 2, {v: 2})]});
    expect(changes[0]?.changed.map(({v}) => v)).toEqual([2]);
  });
});

it("expires by the server's clock", () => {
  const store = new Store();
  store.update({cells: [item("a", 1, {x: 100}), item("b", 1, {x: 101})]});
  store.expire(100);
  expect([...store.items("cells").keys()]).toEqual(["b"]);
});

it("drops what is unwanted, layer by layer", () => {
  const store = new Store();
  store.update({cells: [item("a", 1)], points: [item("a", 1)]});
  store.drop((_, layer) => layer === "points");
  expect(store.counts()).toEqual({cells: 1, points: 0});
});
