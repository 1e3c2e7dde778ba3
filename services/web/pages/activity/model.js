// The report of insights as series of charts, and the partitions as rows. No part of the page is needed here.
import { parseJson, printJson } from "../../exact_json.js";

export const WINDOWS = ["1m", "5m", "15m"];
export const STATUSES = [
  ["completed", "good"],
  ["failed", "bad"],
  ["cancelled", "c8"],
];
const MINUTE_MS = 60_000;
const MODELS_MAX = 6;

/** The window that an address names, else the first one that the report has. @param {string | null} wanted @param {any} report */
export const windowOf = (wanted, report) => (wanted && report.windows[wanted] ? wanted : report.windows["5m"] ? "5m" : Object.keys(report.windows)[0]);

/**
 * The minutes of a report without gaps: one in which no run ended is all zeros, with no durations.
 * @param {any} report @returns {any[]}
 */
export function minutesOf(report) {
  if (!report.minutes.length) return [];
  const known = new Map(report.minutes.map((minute) => [minute.start_ms, minute]));
  const first = Math.min(...known.keys());
  const last = Math.max(...known.keys(), Math.floor(report.at_ms / MINUTE_MS) * MINUTE_MS);
  const minutes = [];
  for (let start = Math.max(first, last - report.history_minutes * MINUTE_MS); start <= last; start += MINUTE_MS) minutes.push(known.get(start) ?? emptyMinute(start));
  return minutes;
}

const emptyMinute = (start) => ({
  start_ms: start, runs: 0, completed: 0, failed: 0, cancelled: 0, tokens: 0, input_tokens: 0, output_tokens: 0, cost_micros: {},
  duration_ms: { p50: null, p95: null }, models: [], model_calls: 0, model_errors: 0, tool_calls: 0, tool_errors: 0,
});

/**
 * What the charts draw. Money has one list for each currency, since amounts of two currencies have no common axis.
 * @param {any} report
 */
export function chartsOf(report) {
  const minutes = minutesOf(report);
  const of = (name) => minutes.map((minute) => minute[name]);
  return {
    times: minutes.map((minute) => minute.start_ms / 1_000),
    runs: STATUSES.map(([name, tone]) => ({ name, tone, values: of(name) })),
    tokens: [
      { name: "input", tone: "c2", values: of("input_tokens") },
      { name: "output", tone: "c1", values: of("output_tokens") },
    ],
    errors: [
      { name: "failed runs", tone: "bad", values: of("failed") },
      { name: "model calls", tone: "c3", values: of("model_errors") },
      { name: "tool calls", tone: "c4", values: of("tool_errors") },
    ],
    durations: [
      { name: "median", tone: "c1", values: minutes.map((minute) => minute.duration_ms.p50) },
      { name: "95th percentile", tone: "c3", values: minutes.map((minute) => minute.duration_ms.p95) },
    ],
    latencies: busiestModels(minutes).map(([provider, model]) => ({
      name: `${provider}/${model}`,
      values: minutes.map((minute) => minute.models.find((one) => one.provider === provider && one.model === model)?.duration_ms.p95 ?? null),
    })),
    costs: currenciesOf(minutes).map((currency) => ({ currency, values: minutes.map((minute) => minute.cost_micros[currency] ?? 0) })),
  };
}

/** The models with most timed calls over all minutes, in an order that does not change with the next minute. @param {Api.InsightsMinute[]} minutes */
function busiestModels(minutes) {
  const calls = new Map();
  for (const minute of minutes) {
    for (const one of minute.models) {
      const key = printJson([one.provider, one.model]);
      calls.set(key, (calls.get(key) ?? 0) + one.timed_calls);
    }
  }
  return [...calls].sort((a, b) => b[1] - a[1]).slice(0, MODELS_MAX).map(([key]) => key).sort().map((key) => parseJson(key));
}

const currenciesOf = (minutes) => [...new Set(minutes.flatMap((minute) => Object.keys(minute.cost_micros)))].sort();

/** One row a partition. @param {any} list the answer of GET /v1/_partitions */
export const partitionsOf = (list) => list.topics.flatMap((topic) => topic.partitions.map((one) => ({ ...one, topic: topic.topic, name: topic.name })));

/** The take-overs of all partitions, newest first; those at the same moment by topic and partition. @param {any} list */
export function takeoversOf(list) {
  const rows = partitionsOf(list).flatMap((partition) => partition.takeovers.map((one) => ({ ...one, topic: partition.topic, name: partition.name, partition: partition.partition })));
  return rows.sort((a, b) => (a.at < b.at ? 1 : a.at > b.at ? -1 : a.topic === b.topic ? a.partition - b.partition : a.topic < b.topic ? -1 : 1));
}

/** Owners with the number of their partitions and their lag, the busiest first. @param {any} list */
export function ownersOf(list) {
  const owners = new Map();
  for (const one of partitionsOf(list)) {
    const name = one.owner ?? "";
    const before = owners.get(name) ?? { owner: name, partitions: 0, lag: 0 };
    owners.set(name, { owner: name, partitions: before.partitions + 1, lag: before.lag + one.lag });
  }
  return [...owners.values()].sort((a, b) => b.partitions - a.partitions);
}
