// Bars too narrow for a text, on one canvas: a run of thousands of calls has more of them in view than elements can be moved at 60 frames.
import { html, useLayoutEffect, useRef } from "../../ui.js";
import { theme } from "../../settings.js";

const BAR = 20;
const NEAR = 3;

/** @typedef {{x: number, y: number, width: number, one: any, isCritical: boolean, isSelected: boolean}} Strip */

/**
 * @param {{strips: Strip[], width: number, top: number, height: number, onHover: (hover: any) => void, onChoose: (one: any) => void}} properties
 *   top, height: the part of the lanes that is in view
 */
export function Strips({ strips, width, top, height, onHover, onChoose }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const colors = theme.value;
  useLayoutEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const ratio = devicePixelRatio || 1;
    const wanted = [Math.round(width * ratio), Math.round(height * ratio)];
    if (element.width !== wanted[0]) element.width = wanted[0];
    if (element.height !== wanted[1]) element.height = wanted[1];
    const pen = /** @type {CanvasRenderingContext2D} */ (element.getContext("2d"));
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const style = getComputedStyle(element);
    const known = new Map();
    const color = (name) => {
      if (!known.has(name)) known.set(name, style.getPropertyValue(`--${name}`).trim());
      return known.get(name);
    };
    for (const { x, y, width: wide, one, isCritical, isSelected } of strips) {
      pen.fillStyle = color(one.bar.tone);
      pen.globalAlpha = isCritical || one.bar.tone === "bad" ? 0.75 : 0.38;
      pen.fillRect(x, y - top + 2, wide, BAR);
      pen.globalAlpha = 1;
      pen.fillRect(x, y - top + 2, Math.min(2, wide), BAR);
      if (isSelected) {
        pen.strokeStyle = color("text");
        pen.lineWidth = 2;
        pen.strokeRect(x, y - top + 2, wide, BAR);
      }
    }
  }, [strips, width, top, height, colors]);
  const at = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top + top;
    return strips.find((strip) => y >= strip.y && y <= strip.y + BAR + 2 && x >= strip.x - NEAR && x <= strip.x + strip.width + NEAR);
  };
  const show = (event) => {
    const found = at(event);
    event.currentTarget.style.cursor = found ? "pointer" : "";
    onHover(found ? { bar: found.one.bar, count: found.one.count, x: event.clientX, y: event.clientY } : null);
  };
  const choose = (event) => {
    const found = at(event);
    if (found) onChoose(found.one);
  };
  return html`<canvas class="timeline-strips" ref=${canvas} aria-hidden="true" style=${{ top: `${top}px`, width: `${width}px`, height: `${height}px` }} onPointerMove=${show} onPointerLeave=${() => onHover(null)} onClick=${choose}></canvas>`;
}
