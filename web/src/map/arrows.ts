import {InstancedLayer, type Program, type TidalProps} from "./gpu";

/** x along the arrow (0 its tail, 1 its tip), y to its sides, z: 0 the shaft, 1 the head. */
const ARROW = new Float32Array(
  [
    [0, -1, 0], [1, -1, 0], [0, 1, 0],
    [0, 1, 0], [1, -1, 0], [1, 1, 0],
    [0, -1, 1], [1, 0, 1], [0, 1, 1],
  ].flat(),
);

const VS = /* glsl */ `#version 300 es
#define SHADER_NAME arrows-vertex
in vec3 positions;
in vec3 instancePosition;
in vec3 instancePosition64Low;
in vec3 instanceTarget;
in vec3 instanceTarget64Low;
in float instanceWeight;
in vec4 instanceColourFrom;
in vec4 instanceColourTo;
in vec4 instanceFade;
out vec4 vColour;
out float vProvisional;
out float vAlong;
out float vSide;
out float vHead;

void main(void) {
  geometry.worldPosition = instancePosition;
  vec4 common_position;
  vec4 source = project_position_to_clipspace(instancePosition, instancePosition64Low, vec3(0.0), common_position);
  vec4 target = project_position_to_clipspace(instanceTarget, instanceTarget64Low, vec3(0.0), geometry.position);
  vec2 a = source.xy / source.w * project.viewportSize * 0.5;
  vec2 b = target.xy / target.w * project.viewportSize * 0.5;
  float reach = length(b - a);
  vec2 along = reach > 0.0 ? (b - a) / reach : vec2(0.0, 1.0);
  vec2 across = vec2(-along.y, along.x);
  // From inside the cell that is left to inside the next; as wide as its weight, but never wider than the cells allow.
  float width = min(mix(2.0, 7.0, instanceWeight) * tidal.ratio * (1.0 + 0.4 * instanceFade.w), reach * 0.2);
  float head = min(max(width * 2.4, 7.0 * tidal.ratio), reach * 0.42);
  float tip = 0.92 * reach;
  float tail = 0.14 * reach;
  float x = positions.z > 0.5 ? tip - head + positions.x * head : mix(tail, tip - head * 0.98, positions.x);
  float taper = positions.z > 0.5 ? head * 0.62 * (1.0 - positions.x) : width * mix(0.3, 0.5, positions.x);
  vec2 pixel = a + along * x + across * taper * positions.y;
  gl_Position = vec4(pixel / (project.viewportSize * 0.5), source.z / source.w, 1.0);
  vColour = tidal_colour(instanceColourFrom, instanceColourTo, instanceFade);
  // Thin things need more contrast than areas do: they lean toward the ink.
  vColour.a = min(1.0, vColour.a * 1.6) * layer.opacity * tidal_held(instanceFade) * (reach < 3.0 ? 0.0 : 1.0);
  vColour.rgb = mix(vColour.rgb, tidal.ink.rgb, 0.45 + 0.35 * instanceFade.w);
  // The tail fades in, so that the direction is seen even where arrows are small.
  vAlong = x / max(1.0, tip);
  vProvisional = instanceFade.z;
  vSide = x;
  vHead = positions.z;
}
`;

const FS = /* glsl */ `#version 300 es
#define SHADER_NAME arrows-fragment
precision highp float;
in vec4 vColour;
in float vProvisional;
in float vAlong;
in float vSide;
in float vHead;
out vec4 fragColor;

void main(void) {
  float alpha = vColour.a * smoothstep(0.05, 0.55, vAlong);
  // Dashes while it is provisional; but the head tells where it goes.
  if (vProvisional > 0.5) alpha *= vHead > 0.5 ? 0.75 : fract(vSide / (5.0 * tidal.ratio)) > 0.5 ? 0.9 : 0.2;
  if (alpha <= 0.003) discard;
  fragColor = vec4(vColour.rgb, alpha);
  DECKGL_FILTER_COLOR(fragColor, geometry);
}
`;

export class ArrowsLayer extends InstancedLayer<TidalProps> {
  static override layerName = "ArrowsLayer";

  protected override program(): Program {
    return {vs: VS, fs: FS, vertices: ARROW, topology: "triangle-list"};
  }
}
