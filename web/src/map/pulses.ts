import {InstancedLayer, SQUARE, type Program, type TidalProps} from "./gpu";

const VS = /* glsl */ `#version 300 es
#define SHADER_NAME pulses-vertex
in vec3 positions;
in vec3 instanceTarget;
in vec3 instanceTarget64Low;
in vec4 instanceColourFrom;
in vec4 instanceColourTo;
in vec4 instanceFade;
out vec4 vColour;
out vec2 vPixel;
out float vPhase;
out float vEmphasis;

void main(void) {
  geometry.worldPosition = instanceTarget;
  gl_Position = project_position_to_clipspace(instanceTarget, instanceTarget64Low, vec3(0.0), geometry.position);
  vPixel = positions.xy * tidal.scale;
  gl_Position.xy += project_pixel_size_to_clipspace(vPixel);
  vColour = tidal_colour(instanceColourFrom, instanceColourTo, instanceFade);
  vColour.a *= layer.opacity * tidal_held(instanceFade);
  vPhase = tidal.still > 0.5 ? 0.55 : (tidal.time - instanceFade.x) / 1800.0;
  vEmphasis = instanceFade.w;
}
`;

const FS = /* glsl */ `#version 300 es
#define SHADER_NAME pulses-fragment
precision highp float;
in vec4 vColour;
in vec2 vPixel;
in float vPhase;
in float vEmphasis;
out vec4 fragColor;

float wave(float radius, float phase) {
  float at = mix(6.0, tidal.scale - 3.0, 1.0 - pow(1.0 - phase, 2.0));
  float width = mix(3.0, 1.0, phase);
  return (1.0 - smoothstep(width * 0.5, width * 0.5 + 1.2, abs(radius - at))) * (1.0 - phase);
}

void main(void) {
  float radius = length(vPixel);
  float rings = wave(radius, fract(vPhase));
  if (tidal.still < 0.5) rings = max(rings, wave(radius, fract(vPhase + 0.5)));
  float core = 1.0 - smoothstep(4.4, 5.6, radius);
  float rim = (1.0 - smoothstep(6.2, 7.4, radius)) * (1.0 - core);
  float selected = vEmphasis > 0.0 ? 1.0 - smoothstep(0.8, 2.0, abs(radius - 11.0)) : 0.0;
  float glow = 0.16 * (1.0 - smoothstep(0.0, tidal.scale, radius));
  float alpha = max(max(max(core, rim), rings * 0.85), max(glow, selected));
  vec3 rgb = mix(vColour.rgb, tidal.paper.rgb, rim);
  rgb = mix(rgb, tidal.ink.rgb, selected);
  alpha *= vColour.a;
  if (alpha <= 0.003) discard;
  fragColor = vec4(rgb, alpha);
  DECKGL_FILTER_COLOR(fragColor, geometry);
}
`;

/** Something happened here: rings that run outward, or stand where motion is not wanted. */
export class PulsesLayer extends InstancedLayer<TidalProps> {
  static override layerName = "PulsesLayer";

  protected override program(): Program {
    return {vs: VS, fs: FS, vertices: SQUARE};
  }

  protected override scale(): number {
    return 34;
  }
}
