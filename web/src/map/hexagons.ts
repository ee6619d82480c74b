import {InstancedLayer, type Program, type TidalProps} from "./gpu";

/** Vertex n of a fan as three vertices each: x = which corner (-1 the centre). */
const FAN = new Float32Array(Array.from({length: 6}, (_, i) => [-1, 0, 0, i, 0, 0, (i + 1) % 6, 0, 0]).flat());

const VS = /* glsl */ `#version 300 es
#define SHADER_NAME hexagons-vertex
in vec3 positions;
in vec3 instancePosition;
in vec3 instancePosition64Low;
in vec4 instanceCorners01;
in vec4 instanceCorners23;
in vec4 instanceCorners45;
in vec4 instanceColourFrom;
in vec4 instanceColourTo;
in vec4 instanceFade;
out vec4 vColour;
out float vOut;
out float vRadius;
out float vProvisional;
out float vEmphasis;
out vec2 vPixel;

vec2 corner(int index) {
  if (index == 0) return instanceCorners01.xy;
  if (index == 1) return instanceCorners01.zw;
  if (index == 2) return instanceCorners23.xy;
  if (index == 3) return instanceCorners23.zw;
  if (index == 4) return instanceCorners45.xy;
  return instanceCorners45.zw;
}

void main(void) {
  int index = int(positions.x);
  vec2 offset = index < 0 ? vec2(0.0) : corner(index) * tidal.scale;
  geometry.worldPosition = instancePosition;
  vec4 common_position;
  vec4 centre = project_position_to_clipspace(instancePosition, instancePosition64Low, vec3(0.0), common_position);
  gl_Position = project_position_to_clipspace(instancePosition + vec3(offset, 0.0), instancePosition64Low, vec3(0.0), geometry.position);
  vec4 rim = project_position_to_clipspace(instancePosition + vec3(corner(0) * tidal.scale, 0.0), instancePosition64Low, vec3(0.0), common_position);
  // The centre to the middle of a side, in pixels.
  vRadius = length((rim.xy / rim.w - centre.xy / centre.w) * project.viewportSize * 0.5) * 0.866;
  vPixel = (gl_Position.xy / gl_Position.w - centre.xy / centre.w) * project.viewportSize * 0.5;
  vOut = index < 0 ? 0.0 : 1.0;
  vColour = tidal_colour(instanceColourFrom, instanceColourTo, instanceFade);
  vColour.a *= layer.opacity;
  vProvisional = instanceFade.z;
  vEmphasis = instanceFade.w;
}
`;

const FS = /* glsl */ `#version 300 es
#define SHADER_NAME hexagons-fragment
precision highp float;
in vec4 vColour;
in float vOut;
in float vRadius;
in float vProvisional;
in float vEmphasis;
in vec2 vPixel;
out vec4 fragColor;

void main(void) {
  float edge = (1.0 - vOut) * vRadius / tidal.ratio;
  float line = 1.0 - smoothstep(0.8, 1.8, edge);
  vec3 rgb = vColour.rgb;
  float alpha = vColour.a;
  if (vProvisional > 1.5) {
    // It was retracted: no value is shown any longer, only that there was one.
    rgb = mix(rgb, tidal.ink.rgb, 0.4);
    alpha = min(1.0, alpha * 2.0) * (1.0 - smoothstep(1.6, 2.6, edge));
  } else if (vProvisional > 0.5) {
    // An early result is hatched and outlined: it may still change.
    float stripe = abs(fract((vPixel.x + vPixel.y) / (6.0 * tidal.ratio)) - 0.5) * 2.0;
    float hatch = smoothstep(0.35, 0.6, stripe);
    alpha *= mix(0.16 + 0.42 * hatch, 0.95, line);
  } else {
    alpha = mix(alpha, min(1.0, alpha * 1.12), line);
  }
  if (vEmphasis > 0.0) {
    float ring = 1.0 - smoothstep(vEmphasis > 0.75 ? 2.2 : 1.2, vEmphasis > 0.75 ? 3.2 : 2.2, edge);
    rgb = mix(rgb, tidal.ink.rgb, ring);
    alpha = mix(alpha, 1.0, ring);
  }
  // Softens the outermost pixel.
  alpha *= smoothstep(0.0, 0.7, edge + 0.15);
  if (alpha <= 0.003) discard;
  fragColor = vec4(rgb, alpha);
  DECKGL_FILTER_COLOR(fragColor, geometry);
}
`;

export interface HexagonProps extends TidalProps {
  /** How much of its cell a hexagon fills. */
  fill: number;
}

export class HexagonsLayer extends InstancedLayer<HexagonProps> {
  static override layerName = "HexagonsLayer";

  protected override program(): Program {
    return {vs: VS, fs: FS, vertices: FAN, topology: "triangle-list"};
  }

  protected override scale(): number {
    return this.props.fill;
  }
}
