import {beforeEach, describe, expect, it} from "vitest";
import {EventClock} from "../src/eventclock";

const START = 1_700_000_000_000;
const BEHIND = 40_000;
let now: number;
let past: number | null;
let speed: number;
let clock: EventClock;

beforeEach(() => {
  [now, past, speed] = [START, null, 1];
  clock = new EventClock({now: () => now, past: () => past, speed: () => speed});
});

/** So much later event time has come as far as that. */
function hear(later: number, reached: number): void {
  now = START + later;
  clock.heard({now, event_time: START - BEHIND + reached});
}

describe("event time", () => {
  it("is not shown before the first event, nor taken from a server that has none", () => {
    clock.heard({now, event_time: null});
    clock.tick();
    expect(clock.shown.value).toBeNull();
    hear(1000, 1000);
    expect(clock.shown.value).toBe(START - BEHIND + 1000);
  });

  it("goes on between two messages, as fast as the events come", () => {
    speed = 10;
    hear(0, 0);
    now += 500;
    clock.tick();
    expect(clock.shown.value).toBe(START - BEHIND + 5000);
    expect(clock.at(START - 1000)).toBe(START - BEHIND - 10_000);
  });

  it("of an earlier moment is what it was then, however unevenly it went on since", () => {
    hear(0, 0);
    hear(1000, 900);
    hear(2000, 7000);
    past = START + 500;
    clock.tick();
    expect(clock.time).toBe(START - BEHIND + 450);
    hear(9000, 60_000);
    now += 250;
    clock.tick();
    expect(clock.time).toBe(START - BEHIND + 450);
  });

  it("stands still while the page is paused, also when the next message tells better", () => {
    hear(0, 0);
    past = now = START + 900;
    clock.tick();
    const paused = clock.time;
    hear(1000, 4000);
    expect(clock.time).toBe(paused);
    past = null;
    clock.tick();
    expect(clock.shown.value).toBe(START - BEHIND + 4000);
  });

  it("is told once for all who show it", () => {
    const heard: (number | null)[] = [];
    hear(0, 0);
    clock.shown.subscribe((time) => heard.push(time));
    for (let tick = 0; tick < 8; tick++) {
      now += 250;
      clock.tick();
    }
    expect(heard).toEqual([START - BEHIND + 1000, START - BEHIND + 2000]);
  });

  it("starts anew with a server whose clock went back", () => {
    hear(5000, 5000);
    hear(1000, 800);
    expect(clock.live).toBe(START - BEHIND + 800);
  });
});
