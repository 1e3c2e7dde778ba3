// An icon by its name in vendor/icons.js. Decoration: the text beside it or an aria-label says what it means.
import { h } from "../ui.js";
import { SHAPES } from "../vendor/icons.js";

/** @param {{name: string, size?: number, spin?: boolean}} properties size in pixels */
export function Icon({ name, size = 16, spin = false }) {
  const shapes = SHAPES[name] ?? SHAPES["circle-help"];
  return h(
    "svg",
    {
      class: spin ? "icon spin" : "icon",
      width: size,
      height: size,
      viewBox: "0 0 24 24",
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 2,
      "stroke-linecap": "round",
      "stroke-linejoin": "round",
      "aria-hidden": "true",
    },
    shapes.map(([tag, attributes]) => h(tag, attributes)),
  );
}
