type Child = Node | string | null | undefined | false;
type Props<Tag extends keyof HTMLElementTagNameMap> = {
  [Name in keyof HTMLElementTagNameMap[Tag]]?: HTMLElementTagNameMap[Tag][Name];
} & {data?: Record<string, string>; aria?: Record<string, string>};

/** An element with its properties, data- and aria- attributes, and children. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  options: Omit<Props<Tag>, "style" | "role"> & {role?: string; style?: string},
  ...children: Child[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  const {data, aria, role, style, ...rest} = options;
  Object.assign(element, rest);
  if (role) element.setAttribute("role", role);
  if (style) element.setAttribute("style", style);
  for (const [name, value] of Object.entries(data ?? {})) element.dataset[name] = value;
  for (const [name, value] of Object.entries(aria ?? {})) element.setAttribute(`aria-${name}`, value);
  fill(element, ...children);
  return element;
}

/** Replaces what is in an element; children that are nothing are left out. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
}

const PATHS = {
  layers: "M12 4 3 9l9 5 9-5-9-5ZM4 13.5l8 4.5 8-4.5",
  alert: "M12 4 2.8 19.5h18.4L12 4Zm0 6v4.5m0 2.6v.1",
  table: "M4 5h16v14H4zM4 10h16M10 10v9",
  status: "M3 13h4l2.5-7 4 12 2.5-5h5",
  details: "M12 3.5a8.5 8.5 0 1 0 0 17 8.5 8.5 0 0 0 0-17Zm0 7.5v5m0-8.1v.1",
  close: "M6 6l12 12M18 6 6 18",
  sun: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8Zm0-5v2m0 14v2M3 12h2m14 0h2M5.6 5.6 7 7m10 10 1.4 1.4M18.4 5.6 17 7M7 17l-1.4 1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4 8.5 8.5 0 1 0 20 14.5Z",
  help: "M9 9a3 3 0 1 1 4.2 2.8c-.8.4-1.2 1-1.2 1.9v.4m0 3v.1",
  play: "M8 5.5v13l10.5-6.5z",
  pause: "M8 5.5v13M16 5.5v13",
  back: "M11 7 6 12l5 5m7-10-5 5 5 5",
  forward: "m13 7 5 5-5 5M6 7l5 5-5 5",
  plus: "M12 5v14M5 12h14",
  minus: "M5 12h14",
  home: "M4 11.5 12 5l8 6.5M6.5 10v9h11v-9",
  target: "M12 6a6 6 0 1 0 0 12 6 6 0 0 0 0-12Zm0-4v4m0 12v4M2 12h4m12 0h4",
} as const;
export type IconName = keyof typeof PATHS;

export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  svg.classList.add("icon");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}

export function iconButton(name: IconName, label: string, onclick: () => void, data: Record<string, string> = {}): HTMLButtonElement {
  return h("button", {type: "button", className: "icon-button", title: label, onclick, data, aria: {label}}, icon(name));
}

/** Calls `work` at most once in `ms`, the last time with what came last. */
export function throttled(work: () => void, ms: number): () => void {
  let timer: number | null = null;
  let last = -Infinity;
  return () => {
    if (timer !== null) return;
    timer = window.setTimeout(() => {
      timer = null;
      last = performance.now();
      work();
    }, Math.max(0, last + ms - performance.now()));
  };
}

/** Sets the text only where it differs, so that an unchanged page is left alone. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}
