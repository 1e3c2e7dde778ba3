// The timeline's bars over records of real runs. Run with: node --test tests/web/
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { barsOf, criticalPath, formatTick, growingBars, pack, seen, shortenWaits, ticks } from "../../services/web/pages/run/bars.js";

const read = (name) => JSON.parse(readFileSync(new URL(`${name}.json`, import.meta.url), "utf8"));
const interactive = read("events_interactive");
const retries = read("events_retries");
const fallback = read("events_fallback");
const sum = (parts) => Object.values(parts).reduce((all, ms) => all + ms, 0);

test("every turn, model call, tool call, child and wait of a run is one bar", () => {
  const { bars } = barsOf(interactive);
  const count = (kind) => bars.filter((bar) => bar.kind === kind).length;
  assert.deepEqual(
    Object.fromEntries(["turn", "model", "tool", "child", "question", "compaction", "pause"].map((kind) => [kind, count(kind)])),
    { turn: 8, model: 8, tool: 6, child: 2, question: 1, compaction: 1, pause: 1 },
  );
  assert.deepEqual([...new Set(bars.filter((bar) => bar.kind === "tool").map((bar) => bar.title))], ["Memory", "Context", "Glob", "Grep", "Agent", "Read"]);
});

test("tools that ran at the same time lie in rows of their own", () => {
  const { rows } = barsOf(interactive);
  assert.equal(rows.tool.length, 4);
  for (const lane of Object.values(rows)) for (const row of lane) for (let at = 1; at < row.length; at += 1) assert.ok((row[at - 1].end ?? Infinity) <= row[at].start);
});

test("a child's bar leads to the child and lies within the call that started it", () => {
  const { bars } = barsOf(interactive);
  for (const child of bars.filter((bar) => bar.lane === "child")) {
    const parent = bars.find((bar) => bar.id === child.parent);
    assert.match(child.child, /^r_/);
    assert.equal(parent?.title, "Agent");
    assert.ok(parent.start <= child.start && child.end <= parent.end);
  }
});

test("a bar names the records that it was made of", () => {
  const { bars } = barsOf(interactive);
  const types = (bar) => bar.seqs.map((seq) => interactive[seq - 1].type);
  assert.deepEqual(types(bars.find((bar) => bar.kind === "question")), ["InterruptionOpened", "InterruptionClosed"]);
  assert.deepEqual(types(bars.find((bar) => bar.title === "Read")), ["ToolCallRequested", "ToolReturned"]);
  assert.equal(bars.find((bar) => bar.title === "Read").tone, "bad");
  for (const bar of bars) assert.equal(bar.start, Date.parse(interactive[bar.seqs[0] - 1].at));
  for (const bar of bars.filter((one) => one.end !== null)) assert.equal(bar.end, Date.parse(interactive[bar.seqs[bar.seqs.length - 1] - 1].at));
});

test("an input ends the wait for it, and the last wait is still open", () => {
  const waits = barsOf(interactive).bars.filter((bar) => bar.kind === "input");
  assert.deepEqual(waits.map((bar) => bar.end === null), [false, false, false, false, true]);
});

test("a retry shows which it is, how long it was held back, and why the one before failed", () => {
  const { bars, isEnded } = barsOf(retries);
  const calls = bars.filter((bar) => bar.kind === "model");
  assert.deepEqual(calls.map((bar) => bar.note.split(";")[0]), ["Failed (unavailable): scripted 503: the stub refuses", "Retry 1", "Retry 2"]);
  assert.ok(calls.every((bar) => bar.tone === "bad"));
  assert.ok(calls[0].leadMs < 20 && calls[1].leadMs >= 80 && calls[2].leadMs >= 250, calls.map((bar) => bar.leadMs).join());
  assert.ok(isEnded);
});

test("a fallback is told by the call that follows it and by a mark", () => {
  const { bars, marks } = barsOf(fallback);
  assert.match(bars.filter((bar) => bar.kind === "model")[1].note, /^Fallback from scripted-1/);
  assert.deepEqual(marks.map((mark) => mark.kind), ["fallback", "end"]);
});

test("a new term is a takeover, and the call without a result is followed by its next attempt", () => {
  const before = interactive.slice(0, 2);
  const after = { ...interactive[1], seq: 3, term: 7, at: "2100-01-01T00:00:00.000Z", payload: { ...interactive[1].payload, attempt: 2 } };
  const { bars, marks } = barsOf([...before, after]);
  assert.deepEqual(marks.map((mark) => [mark.kind, mark.seq]), [["takeover", 3]]);
  const calls = bars.filter((bar) => bar.kind === "model");
  assert.deepEqual(calls.map((bar) => bar.end), [Date.parse(after.at), null]);
  assert.equal(calls[1].note, "Attempt 2");
});

test("any beginning of a run can be drawn, and bars keep their ids while it grows", () => {
  const ids = new Set();
  for (let length = 1; length <= interactive.length; length += 1) {
    const { bars } = barsOf(interactive.slice(0, length));
    const now = new Set(bars.map((bar) => bar.id));
    assert.equal(now.size, bars.length);
    for (const id of ids) assert.ok(now.has(id), id);
    for (const id of now) ids.add(id);
  }
});

test("a run that grows gives the same bars as the whole run at once, also when one goes back", () => {
  for (const events of [interactive, retries, fallback]) {
    const grow = growingBars();
    for (let length = 1; length <= events.length; length += 1) assert.deepEqual(grow(events.slice(0, length)), barsOf(events.slice(0, length)));
    assert.deepEqual(grow(events.slice(0, 5)), barsOf(events.slice(0, 5)));
    assert.deepEqual(grow(events), barsOf(events));
  }
});

test("the critical path has as many milliseconds as the run, with what happened inside tools under its own name", () => {
  const { bars, start, end } = barsOf(interactive);
  const path = criticalPath(bars, start, end);
  assert.equal(sum(path.parts) + path.betweenMs, end - start);
  const children = bars.filter((bar) => bar.kind === "child");
  const agent = bars.find((bar) => bar.title === "Agent");
  assert.equal(path.parts.child, Math.max(...children.map((bar) => bar.end)) - children[0].start);
  assert.ok(path.ids.has(agent.id) && children.every((bar) => path.ids.has(bar.id)));
});

test("of tools side by side only the last to end is on the critical path", () => {
  const { bars, start, end } = barsOf(interactive);
  const { ids } = criticalPath(bars, start, end);
  const first = bars.filter((bar) => bar.kind === "tool" && bar.turn === 1);
  assert.deepEqual(first.filter((bar) => ids.has(bar.id)).map((bar) => bar.title), ["Memory"]);
});

test("long waits are drawn short, in order, and every moment can be led back", () => {
  const line = barsOf(interactive);
  const now = line.end + 86_400_000;
  const short = shortenWaits(line, now);
  assert.ok(short.now - line.start < 20_000);
  assert.ok(Math.abs(short.toReal(short.now) - now) < 1_000);
  for (const bar of short.line.bars) {
    assert.ok(Math.abs(short.toReal(bar.start) - bar.real.start) < 1);
    if (bar.kind === "model") assert.ok(Math.abs(bar.end - bar.start - (bar.real.end - bar.real.start)) < 1);
  }
  assert.equal(shortenWaits(barsOf(retries), Date.parse(retries[7].at)), null);
});

test("only bars in view are drawn, and those too close to be told apart become one", () => {
  const row = Array.from({ length: 5_000 }, (_, at) => ({ id: String(at), start: at * 10, end: at * 10 + 8, tone: at === 2_505 ? "bad" : "c1" }));
  pack(row);
  assert.deepEqual(seen(row, 100, 140, 0, 0.1).map((one) => one.bar.id), ["10", "11", "12", "13", "14"]);
  const joined = seen(row, 0, 50_000, 0, 50);
  assert.ok(joined.length <= 501, String(joined.length));
  assert.equal(joined.reduce((all, one) => all + one.count, 0), 5_000);
  assert.ok(joined.some((one) => one.bar.id === "2505"));
  assert.ok(seen(row, 0, 50_000, 0, 50, "77").some((one) => one.bar.id === "77" && one.count === 1));
});

test("the axis has round steps, at most as many as fit", () => {
  assert.deepEqual(ticks(0, 1_000, 5).marks, [0, 200, 400, 600, 800, 1_000]);
  assert.ok(ticks(12_345, 98_765_432, 8).marks.length <= 9);
  assert.deepEqual([formatTick(0, 100), formatTick(250, 50), formatTick(2_500, 500), formatTick(125_000, 5_000), formatTick(3_725_000, 6e4)], ["0", "250 ms", "2.5 s", "2:05", "1:02:05"]);
});
