import type {Theme} from "../theme";

type Rgb = [number, number, number];

/** The colours of the map itself. */
export interface Palette {
  water: Rgb;
  land: Rgb;
  coast: Rgb;
  /** Lines in the water along the shore, as on old charts; from the shore outward. */
  shallows: [red: number, green: number, blue: number, alpha: number][];
  line: Rgb;
  place: Rgb;
  halo: Rgb;
  sea: Rgb;
  paper: Rgb;
  ink: Rgb;
}

export const PALETTES: Record<Theme, Palette> = {
  light: {
    water: [209, 224, 226],
    land: [246, 243, 235],
    coast: [140, 168, 172],
    shallows: [
      [226, 236, 235, 255],
      [219, 231, 231, 255],
      [214, 228, 229, 255],
    ],
    line: [176, 164, 142],
    place: [92, 88, 78],
    halo: [246, 243, 235],
    sea: [110, 142, 150],
    paper: [255, 254, 250],
    ink: [24, 34, 42],
  },
  dark: {
    water: [11, 20, 28],
    land: [24, 34, 41],
    coast: [58, 88, 98],
    shallows: [
      [18, 33, 43, 255],
      [15, 28, 37, 255],
      [13, 24, 32, 255],
    ],
    line: [72, 84, 88],
    place: [158, 170, 172],
    halo: [20, 29, 36],
    sea: [70, 104, 116],
    paper: [10, 16, 21],
    ink: [240, 246, 246],
  },
};

export function unit([red, green, blue]: Rgb): Rgb {
  return [red / 255, green / 255, blue / 255];
}
