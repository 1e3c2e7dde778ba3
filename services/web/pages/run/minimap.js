// The whole run in small, with the part that the timeline shows: drag it, or drag a new one.
import { html, useLayoutEffect, useMemo, useRef, useState } from "../../ui.js";
import { LANES, seen } from "./bars.js";

const HEIGHT = 34;
const ROWS_MAX = 3;

/** @param {{line: any, now: number, whole: {from: number, to: number}, view: {from: number, to: number} | null, onView: (view: {from: number, to: number} | null) => void}} properties */
export function Minimap({ line, now, whole, view, onView }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [width, setWidth] = useState(900);
  useLayoutEffect(() => {
    const element = /** @type {HTMLElement} */ (box.current);
    const observer = new ResizeObserver(() => setWidth(element.clientWidth || 1));
    observer.observe(element);
    return () => observer.disconnect();
  }, []);
  const msPerPixel = (whole.to - whole.from) / width;
  const rects = useMemo(() => {
    const rows = LANES.flatMap((lane) => line.rows[lane].slice(0, ROWS_MAX));
    const height = Math.min(6, (HEIGHT - 6) / Math.max(1, rows.length));
    return rows.flatMap((row, at) =>
      seen(row, whole.from, whole.to, now, msPerPixel).map((one) => html`<rect key=${`${at}.${one.bar.id}`} x=${(one.start - whole.from) / msPerPixel} y=${3 + at * height} width=${Math.max(1, (one.end - one.start) / msPerPixel)} height=${Math.max(1, height - 1)} fill=${`var(--${one.bar.tone})`} />`),
    );
  }, [line, now, width, whole.to]);

  const begin = (event) => {
    if (event.button !== 0) return;
    const element = /** @type {HTMLElement} */ (box.current);
    const zero = element.getBoundingClientRect().left;
    const at = (x) => whole.from + (x - zero) * msPerPixel;
    const first = at(event.clientX);
    const held = view && event.target.closest(".minimap-edge") ? event.target.dataset.edge : view && first >= view.from && first <= view.to ? "all" : "new";
    let isMoved = false;
    const move = (next) => {
      const place = at(next.clientX);
      if (!isMoved && Math.abs(next.clientX - event.clientX) < 4) return;
      isMoved = true;
      if (held === "all" && view) onView({ from: view.from + place - first, to: view.to + place - first });
      else if (held === "from" && view) onView({ from: Math.min(place, view.to - 5 * msPerPixel), to: view.to });
      else if (held === "to" && view) onView({ from: view.from, to: Math.max(place, view.from + 5 * msPerPixel) });
      else onView({ from: Math.min(first, place), to: Math.max(first, place) });
    };
    const up = () => {
      element.removeEventListener("pointermove", move);
      element.removeEventListener("pointerup", up);
      element.removeEventListener("pointercancel", up);
      if (!isMoved && view && held === "new") onView({ from: first - (view.to - view.from) / 2, to: first + (view.to - view.from) / 2 });
    };
    element.setPointerCapture(event.pointerId);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", up);
    element.addEventListener("pointercancel", up);
  };
  const left = view ? (view.from - whole.from) / msPerPixel : 0;
  const right = view ? (view.to - whole.from) / msPerPixel : width;
  return html`<div class="minimap" ref=${box} onPointerDown=${begin} onDblClick=${() => onView(null)} aria-hidden="true">
    <svg width=${width} height=${HEIGHT}>${rects}</svg>
    ${view
      ? html`<i class="minimap-dim" style=${{ left: 0, width: `${Math.max(0, left)}px` }}></i><i class="minimap-dim" style=${{ left: `${right}px`, right: 0 }}></i>
          <b class="minimap-view" style=${{ left: `${left}px`, width: `${Math.max(4, right - left)}px` }}><i class="minimap-edge" data-edge="from"></i><i class="minimap-edge" data-edge="to"></i></b>`
      : null}
  </div>`;
}
