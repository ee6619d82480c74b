/** Keys that work everywhere but where someone types. */
export type Shortcuts = Record<string, () => void>;

export function listenForKeys(shortcuts: Shortcuts): void {
  window.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const target = event.target as HTMLElement | null;
    const typing = target?.matches("input:not([type=checkbox]):not([type=range]), select, textarea") ?? false;
    if (typing && event.key !== "Escape") return;
    // Space and Enter belong to the button that has the focus, arrows and Home to the slider.
    if (target?.matches("button, a, input[type=checkbox]") && event.key === " ") return;
    if (target?.matches("input[type=range], [role=tab], .scroll") && /^(Arrow|Home|End|Page)/.test(event.key)) return;
    if (target?.closest("dialog")) return;
    const run = shortcuts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    if (!run) return;
    event.preventDefault();
    run();
  });
}
