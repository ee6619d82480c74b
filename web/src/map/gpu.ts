import {color, Layer, project32, type LayerProps} from "@deck.gl/core";
import {Geometry, Model, type ModelProps} from "@luma.gl/engine";
import type {ShaderModule} from "@luma.gl/shadertools";
import {COLUMNS, type Column} from "./columns";

/** The time that everything on the map is drawn for. Layers look at it when they are drawn, so a frame needs no new layers. */
export interface Ticker {
  now: number;
  /** Whether things may pulse. */
  still: boolean;
}

export interface InstancedData {
  length: number;
  attributes: Record<string, {value: Column; size: number}>;
}

export interface TidalProps extends LayerProps {
  data: InstancedData;
  ticker: Ticker;
  base: number;
  /** Of the paper that things are drawn on, and of the ink, 0…1. */
  paper: [number, number, number];
  ink: [number, number, number];
}

/** What all of our shaders know. */
const BLOCK = /* glsl */ `\
layout(std140) uniform tidalUniforms {
  float time;
  float scale;
  float zoom;
  float still;
  // Pixels of the device in one of CSS.
  float ratio;
  vec4 paper;
  vec4 ink;
} tidal;
`;
interface TidalUniforms {
  time: number;
  scale: number;
  zoom: number;
  still: number;
  ratio: number;
  paper: [number, number, number, number];
  ink: [number, number, number, number];
}
export const tidal = {
  name: "tidal",
  vs: `${BLOCK}
float tidal_progress(float start, float duration) {
  return duration <= 0.0 ? 1.0 : clamp((tidal.time - start) / duration, 0.0, 1.0);
}
vec4 tidal_colour(vec4 from, vec4 to, vec4 fade) {
  float amount = smoothstep(0.0, 1.0, tidal_progress(fade.x, fade.y));
  vec3 rgb = from.a == 0.0 ? to.rgb : mix(from.rgb, to.rgb, amount);
  return vec4(rgb, mix(from.a, to.a, amount));
}
// What is too thin to leave an outline is gone as soon as it was retracted.
float tidal_held(vec4 fade) {
  return fade.z > 1.5 ? 0.0 : 1.0;
}
`,
  fs: BLOCK,
  uniformTypes: {time: "f32", scale: "f32", zoom: "f32", still: "f32", ratio: "f32", paper: "vec4<f32>", ink: "vec4<f32>"},
} as const satisfies ShaderModule<TidalUniforms>;

const TYPES = {float32: "float32", float64: "float64", uint8: "unorm8"} as const;
/** How the columns come into the shaders. Positions are in two halves, since 32 bits are too coarse for degrees. */
const ATTRIBUTES = new Map(
  Object.entries(COLUMNS).map(([accessor, {type, size}]) => [
    accessor.replace("get", "instance"),
    {size, type: TYPES[type], ...(type === "float64" && {fp64: true}), accessor},
  ]),
);

export interface Program {
  vs: string;
  fs: string;
  /** x, y, z of the vertices of one instance. */
  vertices: Float32Array;
  /** A strip, unless told. */
  topology?: "triangle-list";
}

/** One draw call for all items of a layer, straight from their columns. */
export abstract class InstancedLayer<Props extends TidalProps = TidalProps> extends Layer<Props> {
  static override layerName = "InstancedLayer";
  declare state: {model: Model};

  /** The columns that it reads are the attributes that its vertex shader declares. */
  protected abstract program(): Program;

  /** Further pixels or shares, as the shader wants them. */
  protected scale(): number {
    return 1;
  }

  override initializeState(): void {
    const {vs, fs, vertices, topology = "triangle-strip"} = this.program();
    const read = [...ATTRIBUTES].filter(([name]) => new RegExp(`\\bin \\w+ ${name};`).test(vs));
    this.getAttributeManager()!.addInstanced(Object.fromEntries(read));
    this.state = {
      model: new Model(this.context.device, {
        ...(this.getShaders({vs, fs, modules: [project32, color, tidal]}) as Pick<ModelProps, "vs" | "fs" | "modules">),
        id: this.props.id,
        bufferLayout: this.getAttributeManager()!.getBufferLayouts(),
        geometry: new Geometry({topology, attributes: {positions: {size: 3, value: vertices}}}),
        isInstanced: true,
      }),
    };
  }

  override draw(): void {
    const {ticker, base, paper, ink} = this.props;
    const {model} = this.state;
    model.setInstanceCount(this.props.data.length);
    model.shaderInputs.setProps({
      tidal: {
        time: ticker.now - base,
        scale: this.scale(),
        zoom: this.context.viewport.zoom,
        still: ticker.still ? 1 : 0,
        ratio: this.context.device.canvasContext?.cssToDeviceRatio() ?? 1,
        paper: [...paper, 1],
        ink: [...ink, 1],
      },
    });
    model.draw(this.context.renderPass);
  }
}

/** A square around the place, as a strip: corners at -1 and 1. */
export const SQUARE = new Float32Array([-1, -1, 0, 1, -1, 0, -1, 1, 0, 1, 1, 0]);
