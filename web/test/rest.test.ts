import {expect, it} from "vitest";
import {EventClock} from "../src/eventclock";
import {formatMoment} from "../src/format";
import {atRestSince, standsAt} from "../src/rest";

it("tells of a rest after half a minute, and of none where nothing ever came", () => {
  expect(atRestSince({now: 100_000, last: 70_001})).toBeNull();
  expect(atRestSince({now: 100_000, last: 70_000})).toBe(70_000);
  expect(atRestSince({now: 100_000, last: null})).toBeNull();
  expect(atRestSince({now: 100_000})).toBeNull();
});

it("lets time stand as soon as nothing came since the server last looked", () => {
  expect(standsAt({now: 10_000, last: 7_000})).toBe(Infinity);
  expect(standsAt({now: 10_000, last: 6_000})).toBe(6_000);
  expect(standsAt({now: 10_000, last: null})).toBe(Infinity);
});

it("shows an event clock that stands on a log at rest, and ran before it", () => {
  let now = 1_000_000;
  const clock = new EventClock({now: () => now, past: () => null, speed: () => 1});
  const told: (number | null)[] = [];
  for (let second = 0; second < 5; second++) {
    clock.heard({now, last: 940_000, event_time: 500_000});
    now += 700;
    clock.tick();
    told.push(clock.shown.value);
    now += 300;
  }
  expect(new Set(told)).toEqual(new Set([500_000]));
  expect(clock.at(930_000)).toBe(490_000);
  expect(clock.at(950_000)).toBe(500_000);
});

it("lets the event clock stand when the server told the same time twice, and go on with the next", () => {
  let now = 1_000_000;
  const clock = new EventClock({now: () => now, past: () => null, speed: () => 1});
  clock.heard({now, last: now, event_time: 500_000});
  now += 1000;
  clock.heard({now, last: now - 1000, event_time: 500_000});
  now += 900;
  clock.tick();
  expect(clock.shown.value).toBe(500_000);
  now += 100;
  clock.heard({now, last: now, event_time: 502_000});
  now += 900;
  clock.tick();
  expect(clock.shown.value).toBe(502_000);
  now += 200;
  clock.tick();
  expect(clock.shown.value).toBe(503_000);
});

it("writes the date of a moment that was on another day", () => {
  const noon = Date.UTC(2026, 10, 18, 12);
  expect(formatMoment(noon - 3_600_000, noon, "UTC")).toBe("11:00:00");
  expect(formatMoment(noon - 86_400_000, noon, "UTC")).toBe("Tue 17 Nov, 12:00");
});
