// Usage as rows, totals, bars, days and CSV. Amounts of different currencies are never added. No part of the page is needed here.

/** What rows can be grouped by: key of the API -> column of its rows and words. */
export const DIMENSIONS = {
  tenant: { column: "tenant_id", title: "Tenant" },
  user: { column: "user_id", title: "User" },
  agent: { column: "agent", title: "Agent" },
  model: { column: "model", title: "Model" },
  provider: { column: "provider", title: "Provider" },
  day: { column: "day", title: "Day" },
  source: { column: "source", title: "Paid by the key of" },
};
/** What the bars show and the rows are ordered by. */
export const MEASURES = { cost: "Cost", tokens: "Tokens", calls: "Calls" };
export const RANGES = { today: "Today", "7d": "7 days", "30d": "30 days", month: "This month" };
const DAY_MS = 86_400_000;
const DAYS_MAX = 400;

/** The dimensions that an address names, in the order of the page; at least one. @param {string | null} text */
export function dimensionsOf(text) {
  const named = new Set((text ?? "").split(","));
  const known = Object.keys(DIMENSIONS).filter((name) => named.has(name));
  return known.length ? known : ["agent", "model"];
}

const dayOf = (ms) => new Date(ms).toISOString().slice(0, 10);

/**
 * First and last day, both included, in UTC as the API counts. @param {string} name of RANGES @param {number} now milliseconds
 * @returns {{from: string, to: string}}
 */
export function rangeOf(name, now) {
  const today = dayOf(now);
  if (name === "today") return { from: today, to: today };
  if (name === "month") return { from: `${today.slice(0, 8)}01`, to: today };
  return { from: dayOf(now - (name === "7d" ? 6 : 29) * DAY_MS), to: today };
}

/** The query of the API: `to` of the page is the last day, `to` of the API the time before which it counts. @param {string} from @param {string} to */
export function timesOf(from, to) {
  return { from: from || undefined, to: to ? dayOf(Date.parse(to) + DAY_MS) : undefined };
}

/** What is wrong with two days, in words; empty when nothing is. @param {string} from @param {string} to */
export function rangeProblem(from, to) {
  for (const [name, text] of [["From", from], ["To", to]]) {
    if (text && (!/^\d{4}-\d{2}-\d{2}$/.test(text) || Number.isNaN(Date.parse(text)))) return `${name} is ${text}: expected a day such as 2026-01-31.`;
  }
  return from && to && from > to ? `From (${from}) is after To (${to}).` : "";
}

export const tokensOf = (row) => row.input_tokens + row.output_tokens + row.cache_creation_input_tokens + row.cache_read_input_tokens;

/** The amount that a measure means. @param {any} row @param {string} measure */
export const amountOf = (row, measure) => (measure === "cost" ? row.cost_micros : measure === "tokens" ? tokensOf(row) : row.call_count);

/**
 * Rows whose names contain every word of a text. @param {any[]} rows @param {string[]} dimensions @param {string} text
 */
export function filtered(rows, dimensions, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return rows;
  return rows.filter((row) => {
    const names = dimensions.map((name) => String(row[DIMENSIONS[name].column] ?? "")).join("\n").toLowerCase();
    return words.every((word) => names.includes(word));
  });
}

/**
 * Rows in order, with the share of the largest as `share`. Costs are compared with those of the same currency only, and rows
 * of a currency stay together; rows without a price have no share of the cost.
 * @param {any[]} rows @param {string} measure @returns {any[]}
 */
export function ranked(rows, measure) {
  const group = (row) => (measure === "cost" ? row.currency ?? "" : "all");
  const largest = new Map();
  for (const row of rows) largest.set(group(row), Math.max(largest.get(group(row)) ?? 0, amountOf(row, measure)));
  const order = (a, b) => (a === b ? 0 : a === "" ? 1 : b === "" ? -1 : a < b ? -1 : 1);
  return rows
    .map((row) => ({ ...row, share: largest.get(group(row)) ? amountOf(row, measure) / largest.get(group(row)) : 0 }))
    .sort((a, b) => order(group(a), group(b)) || amountOf(b, measure) - amountOf(a, measure) || tokensOf(b) - tokensOf(a));
}

const SUMMED = ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "cost_micros", "call_count", "unpriced_calls"];

/** One total for each currency, and one for what has no price (currency null). @param {any[]} rows @returns {any[]} */
export function totalsOf(rows) {
  const totals = new Map();
  for (const row of rows) {
    const key = row.currency ?? "";
    const total = totals.get(key) ?? { currency: row.currency ?? null, ...Object.fromEntries(SUMMED.map((name) => [name, 0])) };
    for (const name of SUMMED) total[name] += row[name];
    totals.set(key, total);
  }
  return [...totals.values()].sort((a, b) => (a.currency === null ? 1 : b.currency === null ? -1 : a.currency < b.currency ? -1 : 1));
}

/**
 * Days without gaps, as a chart draws them: tokens of all rows, and cost for each currency.
 * @param {any[]} rows grouped by day @param {string} from @param {string} to empty: the first and last day with usage
 */
export function daysOf(rows, from, to) {
  const known = rows.map((row) => row.day).sort();
  if (!known.length) return { times: [], input: [], output: [], cached: [], costs: [] };
  const last = to || known[known.length - 1];
  const first = from || known[0];
  const days = [];
  for (let ms = Date.parse(first); ms <= Date.parse(last) && days.length < DAYS_MAX; ms += DAY_MS) days.push(dayOf(ms));
  const sum = (amount, currency) => {
    const sums = new Map();
    for (const row of rows) if (currency === undefined || row.currency === currency) sums.set(row.day, (sums.get(row.day) ?? 0) + amount(row));
    return days.map((day) => sums.get(day) ?? 0);
  };
  return {
    times: days.map((day) => Date.parse(day) / 1_000),
    input: sum((row) => row.input_tokens),
    output: sum((row) => row.output_tokens),
    cached: sum((row) => row.cache_creation_input_tokens + row.cache_read_input_tokens),
    costs: [...new Set(rows.map((row) => row.currency).filter(Boolean))].sort().map((currency) => ({ currency, values: sum((row) => row.cost_micros, currency) })),
  };
}

const NUMBERS = ["input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "call_count", "unpriced_calls", "cost_micros"];

/**
 * The rows as CSV (RFC 4180). A name that a spreadsheet would calculate begins with an apostrophe: names come from anybody.
 * @param {any[]} rows @param {string[]} dimensions
 */
export function csvOf(rows, dimensions) {
  const columns = dimensions.map((name) => DIMENSIONS[name].column);
  const head = [...columns, ...NUMBERS, "cost", "currency"];
  const lines = rows.map((row) => [...columns.map((name) => textCell(row[name])), ...NUMBERS.map((name) => String(row[name])), row.currency ? decimal(row.cost_micros) : "", textCell(row.currency)]);
  return [head, ...lines].map((cells) => cells.join(",")).join("\r\n") + "\r\n";
}

function textCell(value) {
  const text = value === null || value === undefined ? "" : String(value);
  const safe = /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Millionths as a decimal number, exactly. */
function decimal(micros) {
  const digits = String(Math.abs(micros)).padStart(7, "0");
  return `${micros < 0 ? "-" : ""}${digits.slice(0, -6)}.${digits.slice(-6)}`;
}
