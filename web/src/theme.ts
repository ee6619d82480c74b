import {Signal} from "./signal";

export type Theme = "light" | "dark";

/** Light or dark: what the reader chose, or else what the system prefers. */
export class Themes {
  readonly theme: Signal<Theme>;
  #chosen: Theme | undefined;

  constructor(chosen: Theme | undefined, private readonly prefersDark = matchMedia("(prefers-color-scheme: dark)")) {
    this.#chosen = chosen;
    this.theme = new Signal(this.#now());
    this.prefersDark.addEventListener("change", () => this.theme.set(this.#now()));
    this.theme.watch((theme) => (document.documentElement.dataset["theme"] = theme));
  }

  /** Undefined while the system decides. */
  get chosen(): Theme | undefined {
    return this.#chosen;
  }

  choose(theme: Theme | undefined): void {
    this.#chosen = theme;
    this.theme.set(this.#now());
  }

  toggle(): void {
    const other = this.theme.value === "dark" ? "light" : "dark";
    const system = this.prefersDark.matches ? "dark" : "light";
    this.choose(other === system ? undefined : other);
  }

  #now(): Theme {
    return this.#chosen ?? (this.prefersDark.matches ? "dark" : "light");
  }
}
