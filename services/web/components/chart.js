// A chart over time by uPlot, in the colours of the theme, with its last values as text for who cannot see it.
import { html, useEffect, useRef, useState } from "../ui.js";
import { printJson } from "../exact_json.js";
import { theme } from "../settings.js";
import { lazyFormat, lazyTimeFormat } from "./time.js";

const HEIGHT = 180;
/** Width of a bar: part of its place, and most pixels. */
const BAR = [0.72, 40];
/** Pixels of a letter beside the axis. */
const LETTER = 6.7;
const DAYS = [1, 2, 7, 14, 30, 60, 90, 180, 365];
const MINUTES = [1, 2, 5, 10, 15, 30, 60, 120, 360, 720, 1_440];
const formatMinute = lazyTimeFormat({});
const formatSecond = lazyTimeFormat({ second: "2-digit" });
const formatDay = lazyFormat(() => new Intl.DateTimeFormat(undefined, { month: "short", day: "2-digit", timeZone: "UTC" }));
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
 * @typedef {{name: string, values: (number | null)[], tone?: string, fill?: boolean}} Series
 * @param {{title: string, times: number[], series: Series[], format?: (value: number) => string, height?: number, stacked?: boolean, days?: boolean}} properties
 *   times in seconds; tone: name of a colour variable without dashes, such as "c2" or "bad". stacked: bars, one series on the other.
 *   days: the times are the beginnings of UTC days. A change of the names of the series draws the chart anew.
 */
export function Chart({ title, times, series, format = (value) => value.toLocaleString(), height = HEIGHT, stacked = false, days = false }) {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {any} */ (null));
  const shown = useRef(/** @type {Series[]} */ (series));
  shown.current = series;
  const [ready, setReady] = useState(uplot !== null);
  const shape = printJson([series.map((one) => [one.name, one.tone]), theme.value, stacked, days]);
  useEffect(() => {
    if (!ready) load().then(() => setReady(true));
  }, []);
  useEffect(() => {
    const element = box.current;
    if (!ready || !element) return undefined;
    const colors = getComputedStyle(document.documentElement);
    const color = (name) => colors.getPropertyValue(`--${name}`).trim();
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { stroke: color("line"), width: 1 }, font: "11px system-ui" };
    const step = times.length > 1 ? times[1] - times[0] : days ? 86_400 : 60;
    const bars = uplot.paths.bars({ size: BAR, radius: 0 });
    const made = new uplot(
      {
        width: element.clientWidth,
        height,
        cursor: { y: false, points: { size: 6, show: !stacked }, drag: { x: false, y: false } },
        legend: { live: true },
        ...(days ? { tzDate: (at) => uplot.tzDate(new Date(at * 1_000), "Etc/UTC") } : {}),
        scales: {
          x: { range: (_, low, high) => (stacked ? [low - step * 0.6, high + step * 0.6] : [low, high]) },
          y: { range: (_, low, high) => [Math.min(0, low ?? 0), (high || 1) * 1.1] },
        },
        axes: [
          { ...axis, size: 30, values: (_, ticks) => ticks.map((tick) => (days ? formatDay : formatMinute)(tick * 1_000)), incrs: days ? DAYS.map((count) => count * 86_400) : MINUTES.map((count) => count * 60) },
          { ...axis, size: (_, labels) => 18 + LETTER * Math.max(4, ...(labels ?? []).map((label) => label.length)), values: (_, ticks) => ticks.map((tick) => format(tick)) },
        ],
        series: [
          { label: days ? "Day" : "Time", value: (_, at) => (at === null || at === undefined ? "newest" : days ? new Date(at * 1_000).toISOString().slice(0, 10) : formatSecond(at * 1_000)) },
          // The highest bar is drawn first, so that those before it in the stack cover its lower part.
          ...orderOf(series, stacked).map((at) => {
            const stroke = color(series[at].tone ?? `c${(at % 8) + 1}`);
            return {
              label: series[at].name,
              stroke,
              width: stacked ? 0 : 1.5,
              fill: stacked ? stroke : series[at].fill ? `${stroke}22` : undefined,
              ...(stacked ? { paths: bars } : {}),
              // A value alone between two gaps has no line: its point is what is seen of it.
              points: stacked ? { show: false } : { size: 5 },
              value: (_, __, ___, index) => {
                const values = shown.current[at]?.values ?? [];
                const value = values[index ?? values.length - 1];
                return value === null || value === undefined ? "–" : format(value);
              },
            };
          }),
        ],
      },
      dataOf(times, series, stacked),
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
  useEffect(() => plot.current?.setData(dataOf(times, series, stacked)), [times, series]);
  return html`<figure class="chart" aria-label=${title}>
    <div ref=${box} aria-hidden="true" style=${{ minHeight: `${height}px` }}></div>
    <figcaption class="spoken">${title}: ${series.map((one) => `${one.name} ${lastOf(one.values, format)}`).join(", ")}</figcaption>
  </figure>`;
}

const orderOf = (series, stacked) => series.map((_, at) => (stacked ? series.length - 1 - at : at));

/** What uPlot draws: the values, or in a stack the sums of each series and those before it. */
function dataOf(times, series, stacked) {
  if (!stacked) return [times, ...series.map((one) => one.values)];
  const sums = times.map(() => 0);
  const stacks = series.map((one) => one.values.map((value, at) => (sums[at] += value ?? 0)));
  return [times, ...stacks.reverse()];
}

function lastOf(values, format) {
  const last = [...values].reverse().find((value) => value !== null && value !== undefined);
  return last === undefined ? "no value" : format(last);
}
