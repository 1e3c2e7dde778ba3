// Times and amounts as people read them: local time with UTC on hover, durations, tokens, money, bytes.
import { html, signal } from "../ui.js";

/** Seconds tick for relative times; one timer for the whole page. */
export const now = signal(Date.now());
setInterval(() => document.visibilityState === "visible" && (now.value = Date.now()), 1_000);

/**
 * `format` of a formatter that is made when it is first used: one takes milliseconds to make, and few pages use them all.
 * @template T @param {() => {format: (value: T) => string}} make @returns {(value: T) => string}
 */
export function lazyFormat(make) {
  let made = /** @type {{format: (value: T) => string} | undefined} */ (undefined);
  return (value) => (made ??= make()).format(value);
}

/** Of this browser's language and hours, with `more`. @param {Intl.DateTimeFormatOptions} more @returns {(date: Date | number) => string} */
export const lazyTimeFormat = (more) => lazyFormat(() => new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hour12: false, ...more }));

const formatClock = lazyTimeFormat({ second: "2-digit" });
const formatDay = lazyTimeFormat({ month: "short", day: "2-digit" });
/** To the millisecond, of any day. @param {number} ms */
export const formatMoment = lazyTimeFormat({ second: "2-digit", fractionalSecondDigits: 3 });
const formatYear = lazyTimeFormat({ year: "numeric", month: "short", day: "2-digit" });

/** @param {string | number | Date | null | undefined} at RFC 3339, or milliseconds @returns {number} milliseconds, NaN if unknown */
export const toMs = (at) => (at === null || at === undefined || at === "" ? NaN : new Date(at).getTime());

/** @param {string | number | null | undefined} at */
export function formatTime(at) {
  const ms = toMs(at);
  if (Number.isNaN(ms)) return "";
  const date = new Date(ms);
  const today = new Date();
  if (date.toDateString() === today.toDateString()) return formatClock(date);
  return (date.getFullYear() === today.getFullYear() ? formatDay : formatYear)(date);
}

/** Local time, UTC on hover; `relative` says "3 min ago". @param {{at: any, relative?: boolean}} properties */
export function Time({ at, relative = false }) {
  const ms = toMs(at);
  if (Number.isNaN(ms)) return html`<span class="dim">–</span>`;
  const utc = new Date(ms).toISOString();
  return html`<time datetime=${utc} title=${`${utc.replace("T", " ").replace("Z", "")} UTC`}>${relative ? formatAgo(now.value - ms) : formatTime(ms)}</time>`;
}

/** @param {number} ms */
export function formatAgo(ms) {
  if (Math.abs(ms) < 2_000) return "now"; // the clock of the page ticks once a second
  if (ms < 0) return `in ${formatDuration(-ms)}`;
  return ms >= 60_000 && ms < 3_600_000 ? `${Math.floor(ms / 60_000)} min ago` : `${formatDuration(ms)} ago`;
}

/** "840 ms", "12.4 s", "3 min 05 s", "2 h 10 min", "4 d". @param {number} ms */
export function formatDuration(ms) {
  if (!Number.isFinite(ms)) return "–";
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  const s = ms < 10_000 ? ms / 1_000 : Math.round(ms / 1_000);
  if (s < 60) return `${s < 10 ? s.toFixed(1) : s} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min ${String(s % 60).padStart(2, "0")} s`;
  if (s < 86_400) return `${Math.floor(s / 3_600)} h ${String(Math.floor((s % 3_600) / 60)).padStart(2, "0")} min`;
  const days = s / 86_400;
  return `${days < 100 ? days.toFixed(1) : formatWhole(Math.round(days))} d`;
}

/** The time between two moments; counts on while the end is unknown. @param {{from: any, to?: any}} properties */
export function Duration({ from, to }) {
  const start = toMs(from);
  if (Number.isNaN(start)) return html`<span class="dim">–</span>`;
  const end = toMs(to);
  return html`<span class="number">${formatDuration((Number.isNaN(end) ? Math.max(now.value, start) : end) - start)}</span>`;
}

/** @type {(value: number) => string} */
const formatWhole = lazyFormat(() => new Intl.NumberFormat());
/** @type {(value: number) => string} */
const formatCompact = lazyFormat(() => new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 }));

/** @param {number | null | undefined} value */
export const formatCount = (value) => (value === null || value === undefined ? "–" : formatWhole(value));
/** "12.3K", the full number is the caller's to show on hover. @param {number | null | undefined} value */
export const formatShort = (value) => (value === null || value === undefined ? "–" : value < 10_000 ? formatWhole(value) : formatCompact(value));

/** @param {number | null | undefined} micros millionths @param {string | null} [currency] */
export function formatMoney(micros, currency) {
  if (micros === null || micros === undefined) return "–";
  const amount = Number(micros) / 1e6; // a limit may be larger than every number
  const digits = amount !== 0 && Math.abs(amount) < 0.01 ? 6 : Math.abs(amount) < 1 ? 4 : 2;
  const text = Math.abs(amount) < 10_000 ? amount.toFixed(digits) : formatWhole(Math.round(amount));
  return `${text}${currency ? ` ${currency}` : ""}`;
}

/** @param {number | null | undefined} bytes */
export function formatBytes(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = Number(bytes);
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? value : value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`;
}
