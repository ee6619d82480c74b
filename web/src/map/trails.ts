import {Columns} from "./columns";
import {InstancedLayer, type InstancedData, type Program, type TidalProps} from "./gpu";
import type {Segment} from "./points";

export const TRAIL = 60_000;
/** Pieces of way in one draw call: a full one is never uploaded again. */
const CHUNK = 8192;

const NAMES = ["getPosition", "getTarget", "getColourTo", "getGlide"] as const;

interface Chunk {
  id: number;
  columns: Columns<(typeof NAMES)[number]>;
  last: number;
  data: InstancedData | null;
}

/** The ways that things travelled in the last minute. */
export class Trails {
  #chunks: Chunk[] = [];
  #made = 0;
  readonly base = performance.now();

  add({from, to, start, duration}: Pick<Segment, "from" | "to" | "start" | "duration">, colour: ArrayLike<number>): void {
    let chunk = this.#chunks.at(-1);
    if (!chunk || chunk.columns.length >= CHUNK) {
      chunk = {id: this.#made++, columns: new Columns(NAMES), last: start, data: null};
      this.#chunks.push(chunk);
    }
    const {columns} = chunk;
    const row = columns.add();
    columns.get("getPosition").set([...from, 0], row * 3);
    columns.get("getTarget").set([...to, 0], row * 3);
    columns.get("getColourTo").set([colour[0]!, colour[1]!, colour[2]!, 255], row * 4);
    columns.get("getGlide").set([0, 0, start - this.base, duration], row * 4);
    columns.touchAll();
    chunk.last = start;
    chunk.data = null;
  }

  /** The chunks that are still seen, with data that is the same object as long as nothing was added. */
  chunks(now: number): {id: number; data: InstancedData}[] {
    this.#chunks = this.#chunks.filter((chunk) => chunk.last > now - TRAIL);
    return this.#chunks.map((chunk) => ({id: chunk.id, data: (chunk.data ??= chunk.columns.data())}));
  }

  get empty(): boolean {
    return this.#chunks.length === 0;
  }

  clear(): void {
    this.#chunks = [];
  }
}

const VS = /* glsl */ `#version 300 es
#define SHADER_NAME trails-vertex
in vec3 positions;
in vec3 instancePosition;
in vec3 instancePosition64Low;
in vec3 instanceTarget;
in vec3 instanceTarget64Low;
in vec4 instanceColourTo;
in vec4 instanceGlide;
out vec4 vColour;

void main(void) {
  float along = tidal_progress(instanceGlide.z, instanceGlide.w);
  geometry.worldPosition = instancePosition;
  vec4 common_position;
  vec4 source = project_position_to_clipspace(instancePosition, instancePosition64Low, vec3(0.0), common_position);
  vec4 target = project_position_to_clipspace(
    mix(instancePosition, instanceTarget, along), mix(instancePosition64Low, instanceTarget64Low, along), vec3(0.0), geometry.position);
  vec2 line = (target.xy / target.w - source.xy / source.w) * project.viewportSize;
  vec2 direction = length(line) > 0.0 ? normalize(line) : vec2(1.0, 0.0);
  gl_Position = positions.x > 0.5 ? target : source;
  gl_Position.xy += project_pixel_size_to_clipspace(vec2(-direction.y, direction.x) * positions.y * tidal.scale);
  float age = clamp((tidal.time - instanceGlide.z) / 60000.0, 0.0, 1.0);
  vColour = vec4(instanceColourTo.rgb, layer.opacity * 0.6 * (1.0 - age) * (1.0 - age));
}
`;

const FS = /* glsl */ `#version 300 es
#define SHADER_NAME trails-fragment
precision highp float;
in vec4 vColour;
out vec4 fragColor;

void main(void) {
  if (vColour.a <= 0.003) discard;
  fragColor = vColour;
  DECKGL_FILTER_COLOR(fragColor, geometry);
}
`;

export class TrailsLayer extends InstancedLayer<TidalProps> {
  static override layerName = "TrailsLayer";

  protected override program(): Program {
    return {vs: VS, fs: FS, vertices: new Float32Array([0, -1, 0, 1, -1, 0, 0, 1, 0, 1, 1, 0])};
  }

  protected override scale(): number {
    return Math.min(2.2, Math.max(0.7, 0.7 + (this.context.viewport.zoom - 9) * 0.25));
  }
}
