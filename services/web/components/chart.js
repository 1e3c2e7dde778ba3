// A chart over time by uPlot, in the colours of the theme, with a table of the same values for who cannot see it.
import { html, useEffect, useRef, useState } from "../ui.js";
import { theme } from "../settings.js";

const HEIGHT = 180;
let uplot = /** @type {any} */ (null);

async function load() {
  if (!uplot) {
    const sheet = document.createElement("link");
    sheet.rel = "stylesheet";
    sheet.href = new URL("../vendor/uplot.css", import.meta.url).href;
    document.head.append(sheet);
    uplot = (await import("../vendor/uplot.js")).default;
  }
  return uplot;
}

/**
 * @param {{title: string, times: number[], series: {name: string, values: (number | null)[], tone?: string, fill?: boolean}[], format?: (value: number) => string, height?: number, stacked?: boolean}} properties
 *   times in seconds; tone: name of a colour variable without dashes, such as "c2" or "bad"
 */
export function Chart({ title, times, series, format = (value) => value.toLocaleString(), height = HEIGHT }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const [ready, setReady] = useState(uplot !== null);
  const shape = series.map((one) => one.name).join("\n") + theme.value;
  useEffect(() => {
    if (!ready) load().then(() => setReady(true));
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!ready || !element) return undefined;
    const colors = getComputedStyle(document.documentElement);
    const color = (name) => colors.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "11px system-ui" };
    const made = new uplot(
      {
        width: element.clientWidth,
        height,
        cursor: { y: false, points: { size: 6 } },
        legend: { live: true },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.1] } },
        axes: [axis, { ...axis, size: 62, values: (_, ticks) => ticks.map((tick) => format(tick)) }],
        series: [
          { value: (_, at) => (at === null ? "" : new Date(at * 1000).toLocaleTimeString()) },
          ...series.map((one, at) => {
            const stroke = color(one.tone ?? `c${(at % 8) + 1}`);
            return { label: one.name, stroke, width: 1.5, fill: one.fill ? `${stroke}22` : undefined, points: { show: false }, value: (_, value) => (value === null || value === undefined ? "–" : format(value)) };
          }),
        ],
      },
      [times, ...series.map((one) => one.values)],
      element,
    );
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [ready, shape, height]);
  useEffect(() => plot.current?.setData([times, ...series.map((one) => one.values)]), [times, series]);
  return html`<figure class="chart" aria-label=${title}>
    <div ref=${box} aria-hidden="true" style=${{ minHeight: `${height}px` }}></div>
    <figcaption class="spoken">${title}: ${series.map((one) => `${one.name} ${lastOf(one.values, format)}`).join(", ")}</figcaption>
  </figure>`;
}

function lastOf(values, format) {
  const last = [...values].reverse().find((value) => value !== null && value !== undefined);
  return last === undefined ? "no value" : format(last);
}
