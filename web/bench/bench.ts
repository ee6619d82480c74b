/** The page itself, fed by the tab instead of by a server: ?cells=5000&movers=2000. Read `window.tidewheel.stats`. */
import {setUp} from "../src/setup";
import type {OpenTransport} from "../src/transport";
import {Feed} from "./feed";

const asked = new URLSearchParams(location.search);
const feed = new Feed(Number(asked.get("cells") ?? 5000), Number(asked.get("movers") ?? 2000));

/** Messages go through text, as they do from a server, so that reading them counts. */
const open: OpenTransport = (_, __, handlers) => {
  const say = (message: unknown): void => handlers.message(JSON.stringify(message));
  const timers = [window.setInterval(() => say(feed.next()), 100), window.setInterval(() => say(feed.status()), 1000)];
  window.setTimeout(() => say(feed.hello()));
  return {
    subscribe: (id) => {
      window.setTimeout(() => say(feed.snapshot(id)));
      return true;
    },
    close: () => timers.forEach((timer) => window.clearInterval(timer)),
  };
};

window.fetch = (input) =>
  new URL(input instanceof Request ? input.url : String(input)).pathname.endsWith("/api/background")
    ? Promise.resolve(Response.json({land: null, lines: null, tiles: null, attribution: "", view: {lon: 24.94, lat: 60.2, zoom: 11}}))
    : Promise.resolve(new Response("not here", {status: 404}));
setUp(() => open);
