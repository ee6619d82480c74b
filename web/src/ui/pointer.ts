import type {LiveMap, Pointed} from "../map/map";

/** Hovering and clicking on the map. A drag is no click; fingers may miss by more than a mouse. */
export function watchPointer(root: HTMLElement, map: LiveMap, on: {hover: (pointed: Pointed | null) => void; click: (pointed: Pointed | null) => void}): void {
  let at: {x: number; y: number} | null = null;
  let waiting: number | null = null;
  let down: {x: number; y: number; time: number} | null = null;
  const onCanvas = (event: Event): boolean => (event.target as HTMLElement).tagName === "CANVAS";
  const place = (event: PointerEvent): {x: number; y: number} => {
    const box = root.getBoundingClientRect();
    return {x: event.clientX - box.left, y: event.clientY - box.top};
  };

  root.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    at = onCanvas(event) && event.buttons === 0 ? place(event) : null;
    waiting ??= requestAnimationFrame(() => {
      waiting = null;
      on.hover(at && map.pick(at.x, at.y, 12));
    });
  });
  root.addEventListener("pointerleave", () => {
    at = null;
    on.hover(null);
  });
  root.addEventListener("pointerdown", (event) => (down = onCanvas(event) ? {...place(event), time: event.timeStamp} : null), true);
  window.addEventListener(
    "pointerup",
    (event) => {
      if (!down || event.button > 0) return;
      const {x, y} = place(event);
      const still = Math.hypot(x - down.x, y - down.y) < 6 && event.timeStamp - down.time < 600;
      down = null;
      if (!still) return;
      // What was hovered over just before must not come after the click.
      if (waiting !== null) cancelAnimationFrame(waiting);
      waiting = null;
      on.click(map.pick(x, y, event.pointerType === "touch" ? 22 : 12));
    },
    true,
  );
}
