import type {Layer} from "@deck.gl/core";
import {BitmapLayer, PathLayer, SolidPolygonLayer, TextLayer} from "@deck.gl/layers";
import type {Background, Region} from "../contract";
import {parseColour} from "../colour";
import type {Theme} from "../theme";
import {PALETTES} from "./palette";
import {rounded, Shores, type Ring} from "./shores";
import {tilesOf} from "./tiles";

type Path = {path: Ring; colour: string | null};
interface Place {
  position: [number, number];
  name: string;
  /** 1 is seen from far away, 4 only from near. */
  rank: number;
  sea: boolean;
}

/** What lies under the results: land and water, place names, the lines of the network, tiles if there are any. */
export class MapBackground {
  #polygons: Ring[][] = [];
  #shores = new Shores([], [], undefined);
  #places: Place[] = [];
  #lines: Path[] = [];
  #tiles: string | null = null;

  useLand(land: GeoJSON.FeatureCollection): void {
    const box = land.bbox as Region | undefined;
    const pieces: Ring[][] = [];
    this.#places = [];
    for (const {geometry, properties} of land.features) {
      if (geometry.type === "Polygon") pieces.push(geometry.coordinates as Ring[]);
      if (geometry.type === "MultiPolygon") pieces.push(...(geometry.coordinates as Ring[][]));
      if (geometry.type === "Point" && properties?.["name"]) {
        this.#places.push({
          position: geometry.coordinates.slice(0, 2) as [number, number],
          name: String(properties["name"]),
          rank: Number(properties["rank"] ?? 2),
          sea: properties["sea"] === true,
        });
      }
    }
    this.#polygons = pieces.map((rings) => rings.map((ring) => rounded(ring, box)));
    this.#shores = new Shores(pieces.flat(), this.#polygons.flat(), box);
  }

  useBackground({lines, tiles}: Pick<Background, "lines" | "tiles">): void {
    this.#tiles = tiles;
    this.#lines = [];
    for (const {geometry, properties} of lines?.features ?? []) {
      const colour = (properties?.["colour"] ?? properties?.["color"] ?? null) as string | null;
      if (geometry.type === "LineString") this.#lines.push({path: geometry.coordinates as Ring, colour});
      if (geometry.type === "MultiLineString") {
        for (const path of geometry.coordinates) this.#lines.push({path: path as Ring, colour});
      }
    }
  }

  /** Are there tiles, which depend on what is seen? */
  get tiled(): boolean {
    return this.#tiles !== null;
  }

  /** What is `around` what is seen; tiles cover what is `seen`. */
  layers(theme: Theme, zoom: number, {seen, around}: {seen: Region | null; around: Region | null}): Layer[] {
    const palette = PALETTES[theme];
    const shores = this.#shores.within(around, zoom);
    const pen = {capRounded: true, jointRounded: true, widthUnits: "pixels" as const};
    const shallows = [...palette.shallows.entries()].reverse().map(
      ([step, colour]) =>
        new PathLayer<Ring>({
          id: `shallows-${step}`,
          data: shores,
          getPath: (ring) => ring,
          getColor: colour,
          getWidth: 8 + step * 11,
          updateTriggers: {getColor: theme},
          ...pen,
        }),
    );
    const land = new SolidPolygonLayer<Ring[]>({
      id: "land",
      data: this.#polygons,
      getPolygon: (rings) => rings,
      getFillColor: palette.land,
      updateTriggers: {getFillColor: theme},
    });
    const coast = new PathLayer<Ring>({
      id: "coast",
      data: shores,
      getPath: (ring) => ring,
      getColor: [...palette.coast, 200],
      getWidth: 0.9,
      updateTriggers: {getColor: theme},
      ...pen,
    });
    const lines = new PathLayer<Path>({
      id: "lines",
      data: this.#lines,
      getPath: ({path}) => path,
      getColor: ({colour}) => (colour ? [...parseColour(colour), 120] : [...palette.line, theme === "light" ? 150 : 170]),
      getWidth: 1,
      widthMinPixels: Math.min(2.4, Math.max(0.6, 0.6 + (zoom - 10) * 0.35)),
      updateTriggers: {getColor: theme},
      ...pen,
    });
    const tiles = (this.#tiles && seen ? tilesOf(this.#tiles, seen, zoom) : []).map(
      ({id, url, bounds}) => new BitmapLayer({id: `tile-${id}`, image: url, bounds, opacity: 0.85}),
    );
    return [...shallows, land, coast, ...tiles, lines];
  }

  /** Names stand above what moves, as on any map. */
  names(theme: Theme, zoom: number): Layer | null {
    if (this.#places.length === 0) return null;
    const palette = PALETTES[theme];
    const shown = Math.floor(zoom * 2) / 2;
    return new TextLayer<Place>({
      id: "places",
      data: this.#places.filter(({rank, sea}) => (sea ? shown < 11.5 : shown >= 7.5 + rank)),
      getPosition: ({position}) => position,
      getText: ({name, sea}) => (sea ? [...name.toUpperCase()].join("\u2009") : name),
      getSize: ({rank, sea}) => (sea ? 13 : rank === 1 ? 16 : rank === 2 ? 13 : 11.5),
      getColor: ({rank, sea}) => (sea ? [...palette.sea, 200] : [...palette.place, rank <= 2 ? 235 : 205]),
      fontFamily: "Figtree Variable, Figtree, system-ui, sans-serif",
      fontWeight: 700,
      fontSettings: {sdf: true, radius: 16, buffer: 10, fontSize: 64, smoothing: 0.15},
      characterSet: "auto",
      outlineWidth: 9,
      outlineColor: [...palette.halo, 220],
      sizeUnits: "pixels",
      updateTriggers: {getColor: theme},
    });
  }
}
