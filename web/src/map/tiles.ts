import type {Region} from "../contract";

export interface Tile {
  id: string;
  url: string;
  bounds: Region;
}

/** The image tiles that cover a region. The map's zoom counts in tiles of 512 pixels, tile servers' in 256. */
export function tilesOf(template: string, [west, south, east, north]: Region, zoom: number, most = 96): Tile[] {
  const z = Math.min(19, Math.max(0, Math.floor(zoom + 1)));
  const count = 2 ** z;
  const column = (lon: number): number => Math.floor(((lon + 180) / 360) * count);
  const row = (lat: number): number => Math.floor(((1 - Math.asinh(Math.tan((lat * Math.PI) / 180)) / Math.PI) / 2) * count);
  const lonOf = (x: number): number => (x / count) * 360 - 180;
  const latOf = (y: number): number => (Math.atan(Math.sinh(Math.PI * (1 - (2 * y) / count))) * 180) / Math.PI;
  const tiles: Tile[] = [];
  for (let y = Math.max(0, row(north)); y <= Math.min(count - 1, row(south)); y++) {
    for (let x = column(west); x <= column(east) && tiles.length < most; x++) {
      const wrapped = ((x % count) + count) % count;
      const url = template.replace("{z}", String(z)).replace("{x}", String(wrapped)).replace("{y}", String(y)).replace("{s}", "a");
      tiles.push({id: `${z}/${x}/${y}`, url, bounds: [lonOf(x), latOf(y + 1), lonOf(x + 1), latOf(y)]});
    }
  }
  return tiles;
}
