import {defineConfig} from "vite";

// The page with a feed of its own, for measuring: no part of the product.
export default defineConfig({
  root: "bench",
  base: "./",
  publicDir: false,
  build: {outDir: "../../build/page-bench", emptyOutDir: true, target: "es2022", chunkSizeWarningLimit: 1500},
});
