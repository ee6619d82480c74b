import {InstancedLayer, SQUARE, type Program, type TidalProps} from "./gpu";

/** The glide from one place to the next happens here, so a frame in which 2,000 vehicles move costs one number. */
const VS = /* glsl */ `#version 300 es
#define SHADER_NAME markers-vertex
in vec3 positions;
in vec3 instancePosition;
in vec3 instancePosition64Low;
in vec3 instanceTarget;
in vec3 instanceTarget64Low;
in vec4 instanceGlide;
in vec4 instanceColourFrom;
in vec4 instanceColourTo;
in vec4 instanceFade;
out vec4 vColour;
out vec2 vUnit;
out float vSize;
out float vEmphasis;
out float vHeaded;
out float vProvisional;

void main(void) {
  float along = tidal_progress(instanceGlide.z, instanceGlide.w);
  vec3 place = mix(instancePosition, instanceTarget, along);
  vec3 place64Low = mix(instancePosition64Low, instanceTarget64Low, along);
  geometry.worldPosition = place;
  gl_Position = project_position_to_clipspace(place, place64Low, vec3(0.0), geometry.position);
  vEmphasis = instanceFade.w;
  vProvisional = instanceFade.z;
  // In pixels; the square is larger than the marker, for the ring of one that is selected.
  vSize = tidal.scale * (1.0 + 0.25 * vEmphasis);
  vec2 unit = positions.xy * 2.4;
  vUnit = unit;
  vHeaded = instanceGlide.x < -1000.0 ? 0.0 : 1.0;
  float angle = radians(instanceGlide.x + instanceGlide.y * along) * vHeaded;
  vec2 turned = vec2(unit.x * cos(angle) + unit.y * sin(angle), unit.y * cos(angle) - unit.x * sin(angle));
  gl_Position.xy += project_pixel_size_to_clipspace(turned * vSize);
  vColour = tidal_colour(instanceColourFrom, instanceColourTo, instanceFade);
  vColour.a *= layer.opacity;
}
`;

const FS = /* glsl */ `#version 300 es
#define SHADER_NAME markers-fragment
precision highp float;
in vec4 vColour;
in vec2 vUnit;
in float vSize;
in float vEmphasis;
in float vHeaded;
in float vProvisional;
out vec4 fragColor;

// Distance to a drop whose tip points up: a disc and the tangents that meet in the tip.
float drop(vec2 p, float tip) {
  p.x = abs(p.x);
  float disc = length(p) - 1.0;
  if (tip <= 1.0) return disc;
  // The tangent touches the disc where its radius stands square on it.
  float s = 1.0 / tip;
  float c = sqrt(1.0 - s * s);
  vec2 normal = vec2(c, s);
  vec2 touch = normal;
  float side = dot(p, normal) - 1.0;
  vec2 direction = vec2(-s, c);
  float t = dot(p - touch, direction);
  float reach = length(vec2(0.0, tip) - touch);
  if (t <= 0.0) return disc;
  if (t >= reach) return length(p - vec2(0.0, tip));
  return side;
}

void main(void) {
  float pixel = 1.0 / vSize;
  float shape = drop(vUnit, vHeaded > 0.5 ? 1.75 : 1.0);
  float rim = max(0.22, 1.1 * pixel);
  float inside = 1.0 - smoothstep(-pixel, pixel * 0.5, shape + rim);
  float outline = 1.0 - smoothstep(-pixel * 0.5, pixel * 0.7, shape);
  vec3 rgb = mix(tidal.paper.rgb, vColour.rgb, inside);
  float alpha = outline * mix(0.92, 1.0, inside);
  if (vProvisional > 1.5) {
    // It was retracted: a ring is left.
    rgb = vColour.rgb;
    alpha = outline * (1.0 - inside);
  } else if (vProvisional > 0.5) {
    rgb = mix(rgb, tidal.paper.rgb, 0.55 * inside);
  }
  // A soft shadow lifts it from the map.
  float shadow = vProvisional > 1.5 ? 0.0 : (1.0 - smoothstep(0.0, 0.7, shape)) * 0.13;
  float ring = 0.0;
  if (vEmphasis > 0.0) {
    float d = abs(length(vUnit) - 2.05);
    ring = 1.0 - smoothstep(pixel * (0.5 + vEmphasis), pixel * (1.3 + vEmphasis), d);
  }
  vec4 result = vec4(mix(vec3(0.0), rgb, alpha / max(0.001, alpha + shadow * (1.0 - alpha))), alpha + shadow * (1.0 - alpha));
  result = mix(result, vec4(tidal.ink.rgb, 1.0), ring);
  result.a *= vColour.a;
  if (result.a <= 0.003) discard;
  fragColor = result;
  DECKGL_FILTER_COLOR(fragColor, geometry);
}
`;

/** Radius of a marker in pixels. */
export function markerSize(zoom: number): number {
  return Math.min(8, Math.max(2.2, 2.1 + (zoom - 9) * 0.92));
}

export class MarkersLayer extends InstancedLayer<TidalProps> {
  static override layerName = "MarkersLayer";

  protected override program(): Program {
    return {vs: VS, fs: FS, vertices: SQUARE};
  }

  protected override scale(): number {
    return markerSize(this.context.viewport.zoom);
  }
}
