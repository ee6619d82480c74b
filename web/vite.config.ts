import {defineConfig} from "vitest/config";

// `npm run dev` shows the page with another process as its server: `tidewheel serve`, or one that TIDEWHEEL_SERVER names.
const server = process.env["TIDEWHEEL_SERVER"] ?? "http://127.0.0.1:8080";

export default defineConfig({
  base: "./",
  publicDir: "public",
  build: {
    outDir: "../src/tidewheel/serve/page",
    emptyOutDir: true,
    target: "es2022",
    // deck.gl alone is more than the usual half megabyte, and the page is nothing without it.
    chunkSizeWarningLimit: 1500,
  },
  server: {proxy: {"/api": {target: server, ws: true}}},
  test: {include: ["test/**/*.test.ts"], environment: "node"},
});
