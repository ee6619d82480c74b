import {Deck, type DeckProps, type MapView} from "@deck.gl/core";
import type {Stats} from "../stats";

/** deck.gl with its frame open to us: it is private there, and there is no other place to measure all of it. */
interface OpenDeck extends Pick<Deck<MapView>, "setProps" | "redraw" | "getViewports" | "isInitialized" | "finalize"> {
  _onRenderFrame(): void;
}
const OpenDeck = Deck as unknown as new (props: DeckProps<MapView>) => OpenDeck;

/** Tells how long deck.gl's part of each drawn frame kept the main thread. */
export class TimedDeck extends OpenDeck {
  #drew = false;
  readonly #stats: Stats;

  constructor(props: DeckProps<MapView>, stats: Stats) {
    super({...props, onAfterRender: () => (this.#drew = true)});
    this.#stats = stats;
  }

  override _onRenderFrame(): void {
    const start = performance.now();
    this.#drew = false;
    super._onRenderFrame();
    if (this.#drew) this.#stats.drew(performance.now() - start);
  }
}
