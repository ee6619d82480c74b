import {h, iconButton} from "./dom";

const KEYS: [keys: string[], what: string][] = [
  [["Space"], "pause, or play from where you are"],
  [[",", "."], "a minute back, a minute forward"],
  [["Home"], "back to live"],
  [["↑", "↓", "←", "→"], "move the map (when it has the focus)"],
  [["+", "−", "0"], "zoom in, zoom out, the whole region"],
  [["1", "…", "9"], "switch a layer"],
  [["L"], "layers and filters"],
  [["A", "T", "S"], "alerts, tables, status"],
  [["R"], "trails"],
  [["D"], "light or dark"],
  [["Esc"], "close what is open"],
  [["?"], "this list"],
];

/** The keyboard, and what is what. */
export function helpDialog(): HTMLDialogElement {
  const dialog = h("dialog", {className: "help", data: {test: "help-dialog"}, aria: {label: "Keyboard and help"}});
  dialog.append(
    h("div", {className: "row"}, h("h2", {}, "Keyboard"), iconButton("close", "Close (Escape)", () => dialog.close())),
    h("dl", {}, ...KEYS.map(([keys, what]) => h("div", {}, h("dt", {}, ...keys.map((key) => (key === "…" ? "…" : h("kbd", {}, key)))), h("dd", {}, what)))),
    h("h2", {}, "What the map tells"),
    h(
      "ul",
      {},
      h("li", {}, "The clock shows event time: when things happened, not when they were heard of."),
      h("li", {}, "Hatched hexagons and pale markers are provisional. They firm up when the watermark has passed their window."),
      h("li", {}, "What is not renewed fades away. What was retracted is emptied at once, and its outline stays for a moment."),
      h("li", {}, "Hexagons of two layers nest in each other. The address of this page holds all that you see: share it."),
    ),
  );
  dialog.onclick = (event) => event.target === dialog && dialog.close();
  document.body.append(dialog);
  return dialog;
}
