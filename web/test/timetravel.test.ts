import {beforeEach, expect, it} from "vitest";
import type {View} from "../src/contract";
import {HOUR, TimeTravel} from "../src/timetravel";
import {TestTimers} from "./timers";

let timers: TestTimers;
let asked: number[];
let shown: number[];
let travel: TimeTravel;
let answer: (at: number) => Promise<View>;

beforeEach(() => {
  timers = new TestTimers();
  asked = [];
  shown = [];
  answer = (at) => Promise.resolve({now: timers.now, at, layers: {}});
  travel = new TimeTravel({
    timers,
    now: () => timers.now,
    fetch: (at) => {
      asked.push(at);
      return answer(at);
    },
    show: ({at}) => shown.push(at!),
  });
});

it("pauses at what is seen, and asks for nothing", async () => {
  travel.pause();
  await timers.pass(5000);
  expect(travel.past).toMatchObject({playing: false, loading: false});
  expect(asked).toEqual([]);
});

it("shows an earlier moment", async () => {
  const at = timers.now - 60_000;
  travel.seek(at);
  expect(travel.past).toMatchObject({at, loading: true});
  await timers.pass(200);
  expect(shown).toEqual([at]);
  expect(travel.past).toMatchObject({at, loading: false});
});

it("asks only for where the slider comes to rest", async () => {
  const start = timers.now;
  for (let i = 1; i <= 20; i++) {
    travel.seek(start - i * 10_000);
    await timers.pass(20);
  }
  await timers.pass(200);
  expect(asked).toEqual([start - 200_000]);
});

it("keeps within the last hour", () => {
  travel.seek(timers.now - 2 * HOUR);
  expect(travel.past?.at).toBe(timers.now - HOUR);
  travel.seek(timers.now + 5000);
  expect(travel.past?.at).toBe(timers.now);
});

it("plays from there, second by second, at the chosen speed", async () => {
  const at = timers.now - 60_000;
  travel.seek(at);
  await timers.pass(200);
  travel.play();
  await timers.pass(3000);
  expect(shown).toEqual([at, at + 1000, at + 2000, at + 3000]);
  travel.play(10);
  await timers.pass(2000);
  expect(shown.slice(4)).toEqual([at + 13_000, at + 23_000]);
});

it("waits for an answer before it asks for the next moment", async () => {
  let free: (view: View) => void = () => {};
  travel.seek(timers.now - 60_000);
  await timers.pass(200);
  answer = () => new Promise((resolve) => (free = resolve));
  travel.play();
  await timers.pass(10_000);
  expect(asked).toHaveLength(2);
  answer = (at) => Promise.resolve({now: 0, at, layers: {}});
  free({now: 0, at: 0, layers: {}});
  for (let i = 0; i < 5; i++) await Promise.resolve();
  await timers.pass(1000);
  expect(asked).toHaveLength(3);
});

it("plays no faster for being asked for other layers meanwhile", async () => {
  const at = timers.now - 60_000;
  travel.seek(at);
  await timers.pass(200);
  travel.play();
  for (let i = 0; i < 3; i++) {
    await timers.pass(400);
    await travel.reload();
  }
  expect(timers.count).toBe(1);
  await timers.pass(3000);
  expect(shown.slice(-3)).toEqual([at + 1000, at + 2000, at + 3000]);
});

it.each([
  ["before it was asked for", 50],
  ["while it is on its way", 200],
])("shows a moment that it is paused at %s", async (_, passed) => {
  let free: (view: View) => void = () => {};
  answer = () => new Promise((resolve) => (free = resolve));
  const at = timers.now - 60_000;
  travel.seek(at);
  await timers.pass(passed);
  travel.pause();
  await timers.pass(200);
  expect(travel.past).toMatchObject({at, loading: true});
  free({now: 0, at, layers: {}});
  await timers.pass(5000);
  for (let i = 0; i < 5; i++) await Promise.resolve();
  expect([asked, shown]).toEqual([[at], [at]]);
  expect(travel.past).toMatchObject({at, loading: false, playing: false});
});

it("stops where it is paused, with what belongs there", async () => {
  let free: (view: View) => void = () => {};
  const at = timers.now - 60_000;
  travel.seek(at);
  await timers.pass(200);
  answer = () => new Promise((resolve) => (free = resolve));
  travel.play();
  await timers.pass(1000);
  travel.pause();
  free({now: 0, at: at + 1000, layers: {}});
  for (let i = 0; i < 5; i++) await Promise.resolve();
  await timers.pass(5000);
  expect(travel.past).toMatchObject({at: at + 1000, playing: false});
  expect(shown).toEqual([at, at + 1000]);
});

it("is live again when it has caught up", async () => {
  travel.seek(timers.now - 3000);
  await timers.pass(200);
  travel.play(10);
  await timers.pass(2000);
  expect(travel.moment.value).toEqual({kind: "live"});
});

it("goes back to live, and what was asked for no longer comes", async () => {
  let free: (view: View) => void = () => {};
  answer = () => new Promise((resolve) => (free = resolve));
  travel.seek(timers.now - 5000);
  await timers.pass(200);
  travel.live();
  free({now: 0, at: 1, layers: {}});
  for (let i = 0; i < 5; i++) await Promise.resolve();
  expect(shown).toEqual([]);
  expect(timers.count).toBe(0);
});

it("says what went wrong, and stays where it is", async () => {
  answer = () => Promise.reject(new Error("api/view: 503"));
  const at = timers.now - 5000;
  travel.seek(at);
  await timers.pass(200);
  expect(travel.past).toMatchObject({at, loading: false, error: "api/view: 503"});
});

it("toggles between playing and pausing", () => {
  travel.toggle();
  expect(travel.past?.playing).toBe(false);
  travel.toggle();
  expect(travel.past?.playing).toBe(true);
  travel.toggle();
  expect(travel.past?.playing).toBe(false);
});

it("asks again when other layers are wanted", async () => {
  travel.seek(timers.now - 5000);
  await timers.pass(200);
  await travel.reload();
  expect(asked).toHaveLength(2);
  travel.live();
  await travel.reload();
  expect(asked).toHaveLength(2);
});
