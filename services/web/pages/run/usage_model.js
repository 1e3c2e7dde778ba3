// What a run used, from its records: by turn, by model, and which limits it met. Pure.

/**
 * @typedef {{key: string, turn: number, kind: "turn" | "compaction", model: string, input: number, cacheRead: number, cacheWrite: number, output: number, cost: number, currency: string, calls: number, failures: number, tools: number, seq: number}} UsageRow
 */

const empty = (key, turn, kind, seq) => ({ key, turn, kind, model: "", input: 0, cacheRead: 0, cacheWrite: 0, output: 0, cost: 0, currency: "", calls: 0, failures: 0, tools: 0, seq });

function add(row, payload, seq) {
  const usage = payload.usage ?? {};
  row.input += usage.input_tokens ?? 0;
  row.cacheRead += usage.cache_read_input_tokens ?? 0;
  row.cacheWrite += usage.cache_creation_input_tokens ?? 0;
  row.output += usage.output_tokens ?? 0;
  row.cost += payload.cost_micros ?? 0;
  row.currency = payload.currency || row.currency;
  row.model = payload.model || row.model;
  row.calls += 1;
  row.seq = seq;
}

/** @param {any[]} events @returns {{rows: UsageRow[], models: any[], limits: any[], totals: UsageRow}} */
export function usageOf(events) {
  /** @type {UsageRow[]} */
  const rows = [];
  /** @type {Map<string, any>} */
  const models = new Map();
  const limits = [];
  const totals = empty("total", 0, "turn", 0);
  const turnOf = (turn, seq) => {
    const last = rows.findLast?.((row) => row.kind === "turn") ?? [...rows].reverse().find((row) => row.kind === "turn");
    if (last && last.turn === turn) return last;
    const row = empty(`t${turn}`, turn, "turn", seq);
    rows.push(row);
    return row;
  };
  const count = (row, payload, seq) => {
    add(row, payload, seq);
    add(totals, payload, seq);
    const name = `${payload.provider}/${payload.model}\n${payload.currency ?? ""}`;
    if (!models.has(name)) models.set(name, { ...empty(name, 0, "turn", seq), provider: payload.provider });
    add(models.get(name), payload, seq);
  };
  for (const { type, seq, payload } of events) {
    if (type === "ModelReplied") count(turnOf(payload.turn, seq), payload, seq);
    else if (type === "ModelCallFailed") {
      const row = turnOf(payload.turn, seq);
      row.failures += 1;
      row.model ||= payload.model;
      totals.failures += 1;
    } else if (type === "ToolReturned") {
      turnOf(payload.turn, seq).tools += 1;
      totals.tools += 1;
    } else if (type === "ContextCompacted" || type === "CompactionFailed") {
      const row = empty(`c${seq}`, payload.turn, "compaction", seq);
      rows.push(row);
      count(row, payload, seq);
      if (type === "CompactionFailed") row.failures += 1;
    } else if (type === "LimitReached") limits.push({ ...payload.notice, seq });
  }
  return { rows, models: [...models.values()], limits, totals };
}

/** Joins neighbouring rows until there are at most `most`, so that a long run fits into one drawing. @param {UsageRow[]} rows @param {number} most */
export function bucketed(rows, most) {
  const size = Math.max(1, Math.ceil(rows.length / most));
  const buckets = [];
  for (let at = 0; at < rows.length; at += size) {
    const part = rows.slice(at, at + size);
    const sum = (name) => part.reduce((all, row) => all + row[name], 0);
    const first = part[0];
    const last = part[part.length - 1];
    const name = part.length > 1 ? `Turns ${first.turn} to ${last.turn}` : first.kind === "compaction" ? "Compaction" : `Turn ${first.turn}`;
    buckets.push({ key: first.key, name, turn: first.turn, kind: first.kind, input: sum("input"), cacheRead: sum("cacheRead"), cacheWrite: sum("cacheWrite"), output: sum("output"), cost: sum("cost"), currency: first.currency });
  }
  return buckets;
}
