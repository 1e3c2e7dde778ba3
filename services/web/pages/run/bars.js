// A run's records as bars on a time axis: turns, model calls, tools, children, waits. Pure: values in, values out.
// A bar opens with the record that intended something and closes with the one that has its result; a bar that is open at the
// end of the records is still under way. Marks are moments: a new term of the owner (a takeover), a limit, a switch of models.

/** @typedef {"turn" | "model" | "tool" | "child" | "wait"} Lane */
/**
 * @typedef {object} Bar
 * @property {string} id unique in the run, stable while it grows
 * @property {Lane} lane
 * @property {string} kind turn, model, compaction, tool, child, question, channel, input, pause, outcome, quarantine
 * @property {string} title
 * @property {string} note what else is told: a retry, a fallback, a reason; empty if nothing
 * @property {number} start milliseconds
 * @property {number | null} end null while it is under way
 * @property {number} leadMs of its time, how long it waited before it began: a delayed retry, admission, limits
 * @property {number} turn
 * @property {number} row place in its lane, from 0; bars of one row do not overlap
 * @property {number[]} seqs its records
 * @property {string} tone variable of the colour: good, bad, warn, c1 to c8
 * @property {string} parent id of the bar in which it happened; empty for none
 * @property {string} child id of the child run; empty for none
 * @property {{input: number, output: number, cacheRead: number, cacheWrite: number} | null} tokens
 * @property {number} cost millionths
 * @property {string} currency
 * @property {{start: number, end: number | null}} [real] its true times, where long waits are shortened
 */
/** @typedef {{at: number, seq: number, kind: string, title: string, tone: string, real?: number}} Mark */
/** @typedef {{bars: Bar[], marks: Mark[], rows: Record<Lane, Bar[][]>, start: number, end: number, isEnded: boolean}} Timeline */

export const LANES = /** @type {Lane[]} */ (["turn", "model", "tool", "child", "wait"]);
const ENDS = new Set(["RunCompleted", "RunFailed", "RunCancelled", "RunRefused"]);
const TONES = { turn: "line-strong", model: "c2", compaction: "c4", tool: "c1", child: "c6", question: "c3", outcome: "c3", channel: "c7", input: "c8", pause: "warn", quarantine: "bad" };

/** @param {any[]} events records of one run in the order of their seqs @returns {Timeline} */
export function barsOf(events) {
  const fold = new Fold();
  for (const event of events) fold.add(event);
  return fold.result();
}

/** Folds a run that grows: of an array that continues the one before, only the new records are folded. @returns {(events: any[]) => Timeline} */
export function growingBars() {
  let fold = new Fold();
  let count = 0;
  let last = /** @type {any} */ (null);
  return (events) => {
    if (count > events.length || (count && events[count - 1] !== last)) {
      fold = new Fold();
      count = 0;
    }
    for (; count < events.length; count += 1) fold.add(events[count]);
    last = events[count - 1] ?? null;
    return fold.result();
  };
}

class Fold {
  constructor() {
    /** @type {Bar[]} */
    this.bars = [];
    /** @type {Mark[]} */
    this.marks = [];
    /** @type {Map<string, Bar>} */
    this.open = new Map();
    /** @type {Map<string, {name: string, input: string}>} */
    this.calls = new Map();
    /** @type {Bar | null} */
    this.turn = null;
    this.term = -1;
    this.switched = "";
    this.start = NaN;
    this.end = NaN;
    this.isEnded = false;
  }

  add(event) {
    const at = Date.parse(event.at);
    const { seq, type, payload } = event;
    if (Number.isNaN(this.start)) this.start = at;
    this.end = Number.isNaN(this.end) ? at : Math.max(this.end, at);
    if (this.term >= 0 && event.term !== this.term) this.marks.push({ at, seq, kind: "takeover", title: `Taken over: term ${this.term} to ${event.term}`, tone: "warn" });
    this.term = event.term;
    const one = STEPS[type];
    if (one) one(this, payload, at, seq);
    if (ENDS.has(type)) this.finish(type, payload, at, seq);
    else if (this.turn && payload.turn === this.turn.turn && type !== "RunPaused") this.touch(this.turn, seq, at);
  }

  /** @param {string} key @param {Lane} lane @param {string} kind @param {string} title @param {number} at @param {number} seq @param {Partial<Bar>} [more] */
  begin(key, lane, kind, title, at, seq, more = {}) {
    this.close(key, at, seq);
    /** @type {Bar} */
    const bar = { id: `${key}@${seq}`, lane, kind, title, note: "", start: at, end: null, leadMs: 0, turn: 0, row: 0, seqs: [seq], tone: TONES[kind], parent: "", child: "", tokens: null, cost: 0, currency: "", ...more };
    this.bars.push(bar);
    this.open.set(key, bar);
    return bar;
  }

  /** @param {string} key @param {number} at @param {number} seq @param {Partial<Bar>} [more] @returns {Bar | undefined} */
  close(key, at, seq, more = {}) {
    const bar = this.open.get(key);
    if (!bar) return undefined;
    this.open.delete(key);
    bar.end = Math.max(at, bar.start);
    if (seq !== bar.seqs[bar.seqs.length - 1]) bar.seqs.push(seq);
    return Object.assign(bar, more);
  }

  closeAll(at, seq, isOf = (_) => true, more = {}) {
    for (const [key, bar] of [...this.open]) if (isOf(bar)) this.close(key, at, seq, more);
  }

  touch(bar, seq, at) {
    if (bar.seqs[bar.seqs.length - 1] !== seq) bar.seqs.push(seq);
    bar.end = Math.max(bar.end ?? at, at);
  }

  parentOf(payload) {
    return this.open.get(`tool ${payload.turn}.${payload.index}`)?.id ?? "";
  }

  mark(at, seq, kind, title, tone = "info") {
    this.marks.push({ at, seq, kind, title, tone });
  }

  finish(type, payload, at, seq) {
    const tone = { RunCompleted: "good", RunFailed: "bad", RunRefused: "bad" }[type] ?? "dim";
    this.mark(at, seq, "end", `${type.replace("Run", "")}${payload.error || payload.reason || payload.message ? `: ${payload.error || payload.reason || payload.message}` : ""}`, tone);
    this.closeAll(at, seq, (bar) => bar.lane !== "turn");
    if (this.turn && this.turn.end === null) this.turn.end = at;
    this.turn = null;
    this.isEnded = true;
  }

  result() {
    // A turn reaches as far as what happened in it; the one with something open is still under way.
    const turn = this.turn;
    const isOpen = turn && [...this.open.values()].some((bar) => bar.turn === turn.turn && bar.lane !== "turn" && bar.kind !== "input");
    const bars = isOpen ? this.bars.map((bar) => (bar === turn ? { ...bar, end: null } : bar)) : [...this.bars];
    bars.sort((a, b) => a.start - b.start || a.seqs[0] - b.seqs[0]);
    const rows = /** @type {Record<Lane, Bar[][]>} */ (Object.fromEntries(LANES.map((lane) => [lane, pack(bars.filter((bar) => bar.lane === lane))])));
    return { bars, marks: [...this.marks], rows, start: this.start, end: this.end, isEnded: this.isEnded };
  }
}

/** @type {Record<string, (fold: Fold, payload: any, at: number, seq: number) => void>} */
const STEPS = {
  ModelCallRequested(fold, payload, at, seq) {
    if (!fold.turn || fold.turn.turn !== payload.turn) {
      if (fold.turn && fold.turn.end === null) fold.turn.end = at;
      fold.turn = fold.begin(`turn ${payload.turn}`, "turn", "turn", `Turn ${payload.turn}`, at, seq, { turn: payload.turn });
      fold.open.delete(`turn ${payload.turn}`);
    }
    fold.closeAll(at, seq, (bar) => bar.kind === "input" || bar.kind === "pause");
    fold.closeAll(at, seq, (bar) => bar.kind === "model", { tone: "warn", note: "No result: its owner went away; the next attempt follows." });
    const notes = [];
    if (fold.switched) notes.push(fold.switched);
    else if (payload.retry > 0) notes.push(`Retry ${payload.retry}`);
    else if (payload.attempt > 1) notes.push(`Attempt ${payload.attempt}`);
    fold.switched = "";
    fold.begin(`model ${payload.turn}`, "model", "model", payload.model, at, seq, {
      turn: payload.turn,
      note: notes.join("; "),
      parent: fold.turn.id,
      leadMs: Math.max(0, Number(payload.not_before_ms ?? 0) - at),
    });
  },
  ModelReplied(fold, payload, at, seq) {
    for (const [index, call] of (payload.tool_calls ?? []).entries()) fold.calls.set(`${payload.turn}.${index}`, call);
    const usage = payload.usage ?? {};
    const bar = fold.close(`model ${payload.turn}`, at, seq, {
      tokens: { input: usage.input_tokens ?? 0, output: usage.output_tokens ?? 0, cacheRead: usage.cache_read_input_tokens ?? 0, cacheWrite: usage.cache_creation_input_tokens ?? 0 },
      cost: payload.cost_micros ?? 0,
      currency: payload.currency ?? "",
      title: payload.model,
    });
    if (!bar) return;
    bar.leadMs = lead(bar, payload.duration_ms);
    if (fold.turn) Object.assign(fold.turn, { tokens: bar.tokens, cost: bar.cost, currency: bar.currency });
  },
  ModelCallFailed(fold, payload, at, seq) {
    const bar = fold.close(`model ${payload.turn}`, at, seq, { tone: "bad" });
    if (!bar) return;
    bar.leadMs = lead(bar, payload.duration_ms);
    bar.note = [bar.note, `Failed (${payload.kind}): ${payload.message}`].filter(Boolean).join("; ");
  },
  CallNotBegun(fold, payload, at, seq) {
    const note = "Not begun: its owner stopped as planned; the next attempt repeats nothing.";
    fold.close(payload.kind === "model" ? `model ${payload.turn}` : `tool ${payload.turn}.${payload.index}`, at, seq, { tone: "warn", note });
  },
  ModelSwitched(fold, payload, at, seq) {
    fold.switched = `Fallback from ${payload.failed_model}`;
    fold.mark(at, seq, "fallback", `Fallback from ${payload.failed_model} to ${payload.model}: ${payload.cause || payload.reason}`, "warn");
  },
  FallbackSuppressed(fold, payload, at, seq) {
    fold.mark(at, seq, "fallback", `No fallback${payload.model ? ` to ${payload.model}` : ""}: ${payload.code}`, "warn");
  },
  ToolCallRequested(fold, payload, at, seq) {
    const key = `tool ${payload.turn}.${payload.index}`;
    const again = payload.attempt > 1 ? `Attempt ${payload.attempt}` : "";
    fold.close(key, at, seq, { tone: "warn", note: "No result: its owner went away; the next attempt follows." });
    fold.begin(key, "tool", "tool", fold.calls.get(`${payload.turn}.${payload.index}`)?.name ?? "tool", at, seq, { turn: payload.turn, note: again, parent: fold.turn?.id ?? "" });
  },
  ToolReturned(fold, payload, at, seq) {
    const key = `tool ${payload.turn}.${payload.index}`;
    fold.closeAll(at, seq, (bar) => bar.parent === fold.open.get(key)?.id && bar.lane === "wait");
    const bar = fold.close(key, at, seq, payload.is_error ? { tone: "bad" } : {});
    if (!bar) return;
    const told = payload.outcome && payload.outcome !== "ok" ? `Outcome: ${payload.outcome}` : "";
    bar.note = [bar.note, told, payload.settled_by ? `settled by ${payload.settled_by}` : ""].filter(Boolean).join("; ");
  },
  ToolReconcileRequested(fold, payload, at, seq) {
    fold.mark(at, seq, "outcome", `The tool is asked what became of call ${payload.turn}.${payload.index}: ${payload.reason}`, "warn");
  },
  ToolOutcomeAsked(fold, payload, at, seq) {
    fold.begin(`outcome ${payload.turn}.${payload.index}`, "wait", "outcome", "Waits for a decision about the call's outcome", at, seq, { turn: payload.turn, note: payload.reason, parent: fold.parentOf(payload) });
  },
  CallWaiting(fold, payload, at, seq) {
    const names = (payload.queues ?? []).map((queue) => queue.channel).join(", ");
    fold.begin(`channel ${payload.turn}.${payload.index}`, "wait", "channel", `Waits for ${names || "a channel"}`, at, seq, { turn: payload.turn, parent: fold.parentOf(payload) });
  },
  WaitReported(fold, payload, at, seq) {
    fold.open.get(`channel ${payload.turn}.${payload.index}`)?.seqs.push(seq);
    fold.mark(at, seq, "channel", `${payload.count} messages are there`, "c7");
  },
  InterruptionOpened(fold, payload, at, seq) {
    fold.begin(`question ${payload.interrupt_id}`, "wait", "question", payload.question || "Question", at, seq, { turn: payload.turn, note: payload.kind, parent: fold.parentOf(payload) });
  },
  InterruptionClosed(fold, payload, at, seq) {
    const bar = fold.close(`question ${payload.interrupt_id}`, at, seq);
    if (bar) bar.note = [bar.note, payload.status, payload.by || payload.resolved_by ? `by ${payload.by || payload.resolved_by}` : ""].filter(Boolean).join(", ");
  },
  PersonNotified: (fold, payload, at, seq) => fold.mark(at, seq, "notice", `Notice: ${payload.message}`, "c3"),
  ChildrenPlanned(fold, payload, _at, seq) {
    fold.open.get(`tool ${payload.turn}.${payload.index}`)?.seqs.push(seq);
  },
  ChildRequested(fold, payload, at, seq) {
    const key = `child ${payload.turn}.${payload.index}.${payload.number}`;
    fold.begin(key, "child", "child", payload.agent, at, seq, { turn: payload.turn, child: payload.child_run_id, note: payload.only_look ? "only looked at" : "", parent: fold.parentOf(payload) });
  },
  ChildReturned(fold, payload, at, seq) {
    const tone = { completed: "c6", failed: "bad", cancelled: "c8" }[payload.status] ?? "c6";
    const bar = fold.close(`child ${payload.turn}.${payload.index}.${payload.number}`, at, seq, { tone });
    if (bar) bar.note = [bar.note, payload.status].filter(Boolean).join(", ");
  },
  ResidentLeft: (fold, payload, at, seq) => fold.mark(at, seq, "child", `The resident child ${payload.child_run_id} is over: ${payload.status}`, "c6"),
  RunParked(fold, payload, at, seq) {
    fold.begin("input", "wait", "input", "Waits for input", at, seq, { turn: payload.since_turn });
  },
  InputReceived(fold, payload, at, seq) {
    fold.close("input", at, seq);
    fold.mark(at, seq, "input", `Input from ${payload.source || "the api"}: ${cut(payload.text)}`, "c2");
  },
  RunPauseRequested: (fold, payload, at, seq) => fold.mark(at, seq, "pause", `Pause asked for (${payload.scope})${payload.reason ? `: ${payload.reason}` : ""}`, "warn"),
  RunPaused(fold, payload, at, seq) {
    fold.begin("pause", "wait", "pause", "Paused", at, seq, { turn: payload.turn, note: payload.reason });
  },
  RunResumed(fold, payload, at, seq) {
    if (payload.remaining === 0) fold.close("pause", at, seq);
    else fold.open.get("pause")?.seqs.push(seq);
  },
  CompactionRequested(fold, payload, at, seq) {
    fold.closeAll(at, seq, (bar) => bar.kind === "compaction", { tone: "warn", note: "No result: its owner went away; the next attempt follows." });
    fold.begin("compaction", "model", "compaction", "Compaction", at, seq, { turn: payload.turn, note: `${payload.trigger}, ${payload.model}` });
  },
  ContextCompacted(fold, payload, at, seq) {
    const usage = payload.usage ?? {};
    const bar = fold.close("compaction", at, seq, {
      cost: payload.cost_micros ?? 0,
      currency: payload.currency ?? "",
      tokens: { input: usage.input_tokens ?? 0, output: usage.output_tokens ?? 0, cacheRead: usage.cache_read_input_tokens ?? 0, cacheWrite: usage.cache_creation_input_tokens ?? 0 },
    });
    if (bar) bar.note += `; from ${payload.before_tokens} to ${payload.after_tokens} tokens`;
  },
  CompactionFailed(fold, payload, at, seq) {
    const bar = fold.close("compaction", at, seq, { tone: "bad" });
    if (bar) bar.note += `; failed (${payload.kind}): ${payload.message}`;
  },
  TurnCancelled(fold, payload, at, seq) {
    fold.closeAll(at, seq, (bar) => bar.turn === payload.turn && bar.lane !== "turn", { tone: "c8", note: "Cancelled with its turn" });
    fold.mark(at, seq, "cancel", `Turn ${payload.turn} cancelled${payload.reason ? `: ${payload.reason}` : ""}`, "warn");
  },
  RunQuarantined(fold, payload, at, seq) {
    fold.closeAll(at, seq, (bar) => bar.lane === "model" || bar.lane === "tool", { tone: "warn" });
    fold.begin("quarantine", "wait", "quarantine", "In quarantine", at, seq, { note: payload.error });
  },
  RunReleased: (fold, _payload, at, seq) => void fold.close("quarantine", at, seq),
  LimitReached: (fold, payload, at, seq) => fold.mark(at, seq, "limit", payload.notice?.message || "A limit is reached", payload.notice?.severity === "hard" ? "bad" : "warn"),
  HookActed: (fold, payload, at, seq) => fold.mark(at, seq, "hook", `Hook ${payload.act?.name ?? ""}: ${payload.act?.act ?? ""}`, "c4"),
  CommandRefused: (fold, payload, at, seq) => fold.mark(at, seq, "refused", `Refused: ${payload.message}`, "warn"),
};

const cut = (text = "") => (text.length > 80 ? `${text.slice(0, 80)}…` : text);

/** How long a call waited before it began, from the time that the caller of the provider measured. */
function lead(bar, durationMs) {
  if (!durationMs || bar.end === null) return bar.leadMs;
  const waited = bar.end - bar.start - durationMs;
  return waited > 20 ? Math.max(0, waited) : 0;
}

/** Places bars in rows so that those of one row do not overlap: the first row that is free. Bars come by their start. @param {Bar[]} bars @returns {Bar[][]} */
export function pack(bars) {
  /** @type {Bar[][]} */
  const rows = [];
  const ends = [];
  for (const bar of bars) {
    let row = ends.findIndex((end) => end <= bar.start);
    if (row < 0) row = rows.push([]) - 1;
    ends[row] = bar.end ?? Infinity;
    bar.row = row;
    rows[row].push(bar);
  }
  return rows;
}

/**
 * Which bars made the run as long as it was, from its end backwards: what ended last, before that what ended last before it began.
 * @param {Bar[]} bars @param {number} start @param {number} end
 * @returns {{ids: Set<string>, parts: Record<string, number>, betweenMs: number}} parts: milliseconds of the path by kind of bar
 */
export function criticalPath(bars, start, end) {
  const ids = new Set();
  /** @type {Record<string, number>} */
  const parts = {};
  // What happened inside a tool call belongs to it: a question it asked, the children it waited for.
  const isNested = (bar) => bar.parent && (bar.lane === "child" || bar.lane === "wait");
  /** @type {Map<string, Bar[]>} */
  const nested = new Map();
  for (const bar of bars) if (isNested(bar)) nested.set(bar.parent, [...(nested.get(bar.parent) ?? []), bar]);
  const leaves = bars.filter((bar) => bar.lane !== "turn" && !isNested(bar));
  const ended = leaves.map((bar) => ({ bar, end: Math.min(bar.end ?? end, end) })).sort((a, b) => b.end - a.end || b.bar.start - a.bar.start);
  let at = end;
  let between = 0;
  for (const one of ended) {
    if (one.end > at) continue;
    if (one.end === one.bar.start && one.end === at) continue;
    between += at - one.end;
    at = Math.max(one.bar.start, start);
    ids.add(one.bar.id);
    const within = nested.get(one.bar.id) ?? [];
    const insideMs = covered(within, at, one.end);
    if (insideMs) parts[within[0].kind] = (parts[within[0].kind] ?? 0) + insideMs;
    parts[one.bar.kind] = (parts[one.bar.kind] ?? 0) + one.end - at - insideMs;
  }
  between += at - start;
  for (const bar of bars) if (isNested(bar) && ids.has(bar.parent)) ids.add(bar.id);
  return { ids, parts, betweenMs: Math.max(0, between) };
}

/** Milliseconds between two moments in which at least one of the bars went on. @param {Bar[]} bars by start @param {number} from @param {number} to */
function covered(bars, from, to) {
  let sum = 0;
  let at = from;
  for (const bar of bars) {
    const end = Math.min(bar.end ?? to, to);
    if (end <= at) continue;
    sum += end - Math.max(at, bar.start);
    at = end;
  }
  return sum;
}

/**
 * The bars of a row that are seen between two moments; those too close to be told apart become one.
 * @param {Bar[]} row by start, not overlapping @param {number} from @param {number} to @param {number} now end of open bars @param {number} msPerPixel
 * @param {string} [apart] id of a bar that is never joined with others
 * @returns {{bar: Bar, start: number, end: number, count: number}[]}
 */
export function seen(row, from, to, now, msPerPixel, apart = "") {
  let low = 0;
  let high = row.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((row[middle].end ?? now) < from) low = middle + 1;
    else high = middle;
  }
  const shown = [];
  for (let at = low; at < row.length && row[at].start <= to; at += 1) {
    const bar = row[at];
    const end = bar.end ?? now;
    const last = shown[shown.length - 1];
    if (last && end - last.start < 2 * msPerPixel && bar.id !== apart && last.bar.id !== apart) {
      last.end = Math.max(last.end, end);
      last.count += 1;
      if (bar.tone === "bad") last.bar = bar;
    } else shown.push({ bar, start: bar.start, end, count: 1 });
  }
  return shown;
}

const IDLE = new Set(["input", "pause", "quarantine"]);
/** A shortened wait is as long as this part of all the rest. */
const SHORT_PART = 0.06;

/**
 * The same timeline with long waits shortened, so that a run that waited for a day shows the seconds in which it worked.
 * @param {Timeline} line @param {number} now
 * @returns {{line: Timeline, now: number, toReal: (at: number) => number, idleMs: number} | null} null if no wait is long
 */
export function shortenWaits(line, now) {
  const idle = line.bars.filter((bar) => IDLE.has(bar.kind)).map((bar) => ({ from: bar.start, to: bar.end ?? now }));
  const gaps = [];
  for (const one of idle) {
    const last = gaps[gaps.length - 1];
    if (last && one.from <= last.to) last.to = Math.max(last.to, one.to);
    else gaps.push({ ...one });
  }
  const idleMs = gaps.reduce((sum, gap) => sum + gap.to - gap.from, 0);
  const most = Math.max(1, (now - line.start - idleMs) * SHORT_PART);
  const cuts = gaps.filter((gap) => gap.to - gap.from > most);
  if (!cuts.length) return null;
  // Segments of the shown axis: where each begins in true and in shown time, and how fast it goes.
  const segments = [{ real: line.start, shown: line.start, scale: 1 }];
  for (const gap of cuts) {
    const last = segments[segments.length - 1];
    const shown = last.shown + (gap.from - last.real) * last.scale;
    segments.push({ real: gap.from, shown, scale: most / (gap.to - gap.from) }, { real: gap.to, shown: shown + most, scale: 1 });
  }
  const segmentAt = (at, name) => {
    let low = 0;
    let high = segments.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (segments[middle][name] <= at) low = middle;
      else high = middle - 1;
    }
    return segments[low];
  };
  const toShown = (at) => {
    const one = segmentAt(at, "real");
    return one.shown + (at - one.real) * one.scale;
  };
  const toReal = (at) => {
    const one = segmentAt(at, "shown");
    return one.real + (at - one.shown) / one.scale;
  };
  const moved = new Map(line.bars.map((bar) => [bar, { ...bar, start: toShown(bar.start), end: bar.end === null ? null : toShown(bar.end), real: { start: bar.start, end: bar.end } }]));
  const rows = /** @type {any} */ (Object.fromEntries(LANES.map((lane) => [lane, line.rows[lane].map((row) => row.map((bar) => moved.get(bar)))])));
  const marks = line.marks.map((mark) => ({ ...mark, at: toShown(mark.at), real: mark.at }));
  return { line: { ...line, bars: [...moved.values()], marks, rows, end: toShown(line.end) }, now: toShown(now), toReal, idleMs };
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 6048e5];

/** Moments of the axis, in milliseconds after its zero. @param {number} from @param {number} to @param {number} most */
export function ticks(from, to, most) {
  const step = STEPS_MS.find((one) => (to - from) / one <= most) ?? Math.ceil((to - from) / most);
  const marks = [];
  for (let at = Math.ceil(from / step) * step; at <= to; at += step) marks.push(at);
  return { step, marks };
}

/** "1.5 s", "2:05", "1:02:05": a moment of the axis, as exact as its step. @param {number} ms @param {number} step */
export function formatTick(ms, step) {
  if (ms === 0) return "0";
  const sign = ms < 0 ? "-" : "";
  const all = Math.abs(ms);
  if (all < 1_000 && step < 1_000) return `${sign}${Math.round(all)} ms`;
  if (all < 60_000) return `${sign}${(all / 1_000).toFixed(step < 10 ? 3 : step < 100 ? 2 : step < 1_000 ? 1 : 0)} s`;
  const two = (value) => String(value).padStart(2, "0");
  const s = Math.floor(all / 1_000);
  const rest = step < 1_000 ? (all / 1_000 - s).toFixed(step < 100 ? 2 : 1).slice(1) : "";
  if (s < 3_600) return `${sign}${Math.floor(s / 60)}:${two(s % 60)}${rest}`;
  if (s < 86_400) return `${sign}${Math.floor(s / 3_600)}:${two(Math.floor((s % 3_600) / 60))}:${two(s % 60)}${rest}`;
  return `${sign}${Math.floor(s / 86_400)} d ${two(Math.floor((s % 86_400) / 3_600))}:${two(Math.floor((s % 3_600) / 60))}`;
}
