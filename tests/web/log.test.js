// The log page: places that a person types, the window of records, links and bytes, verifications and their verdict.
import assert from "node:assert/strict";
import { test } from "node:test";
import { NOTHING, commandOf, findingsOf, fold, keysOf, requestOf, verdictOf } from "../../services/web/pages/log/audit_model.js";
import { claimText, commandsOf, fromBase64, fromHex, hexDump, lineOf, parsePlace, parsePosition, placeOfAggregate, placeOfCause, retentionOf, runOfCause, searchTopics } from "../../services/web/pages/log/model.js";
import { ROWS_MAX, hasPaused, openWindow, readBack, readOn } from "../../services/web/pages/log/window.js";

const NOW = new Date(2026, 10, 26, 12, 0, 0).getTime();

test("a place is an offset, an age, a time of today or a date", () => {
  assert.deepEqual(parsePlace(" 0012 ", NOW), { from: "12" });
  assert.deepEqual(parsePlace("15m", NOW), { from: new Date(NOW - 900_000).toISOString() });
  assert.deepEqual(parsePlace("2 h ago", NOW), { from: new Date(NOW - 7_200_000).toISOString() });
  assert.deepEqual(parsePlace("10:30", NOW), { from: new Date(2026, 10, 26, 10, 30).toISOString() });
  assert.deepEqual(parsePlace("2026-01-31 9:05", NOW), { from: new Date(2026, 0, 31, 9, 5).toISOString() });
  assert.deepEqual(parsePlace("2026-01-31", NOW), { from: new Date(2026, 0, 31).toISOString() });
  assert.deepEqual(parsePlace("2026-01-31T12:00:00Z", NOW), { from: "2026-01-31T12:00:00.000Z" });
});

test("a time that is still to come was that of yesterday", () => {
  assert.deepEqual(parsePlace("23:59", NOW), { from: new Date(2026, 10, 25, 23, 59).toISOString() });
});

test("what is no place is told with examples", () => {
  for (const text of ["", "soon", "25:00", "-3", "2026-13-40", "1e3", "9".repeat(30)]) assert.match(parsePlace(text, NOW).problem ?? "", /Give an offset/, text);
});

/** A partition with records at all offsets from `beginning` to before `end`, read as the API does. */
function partitionOf(beginning, end, { scan = Infinity } = {}) {
  const queries = [];
  const read = async (query) => {
    queries.push(query);
    const at = query.cursor ? Number(query.cursor) : query.from !== undefined ? Number(query.from) : end - query.tail;
    const records = [];
    let offset = Math.max(beginning, Math.min(at, end));
    for (let scanned = 0; offset < end && records.length < query.limit && scanned < scan; offset += 1, scanned += 1) {
      const type = offset % 1_000 === 0 ? "RunStarted" : "ModelReplied";
      if (!query.type || query.type === type) records.push({ offset, type });
    }
    return { records, next: offset < end ? String(offset) : null, next_offset: offset, beginning_offset: beginning, end_offset: end };
  };
  return { read, queries };
}
const offsets = (window) => window.rows.map((row) => row.offset);
const range = (from, to) => Array.from({ length: to - from }, (_, at) => from + at);

test("without a place the newest records are read, up to the end", async () => {
  const { read } = partitionOf(0, 1_000);
  const window = await openWindow(read, "", {});
  assert.deepEqual(offsets(window), range(800, 1_000));
  assert.equal(window.first, 800);
  assert.ok(window.isAtEnd);
});

test("from an offset the window grows to both sides without a gap or a double", async () => {
  const { read } = partitionOf(10, 1_000);
  let window = await openWindow(read, "500", {});
  assert.equal(window.first, 500);
  window = await readBack(read, window, {});
  window = await readOn(read, window, {});
  window = await readBack(read, window, {});
  assert.deepEqual(offsets(window), range(100, 900));
  window = await readBack(read, window, {});
  assert.equal(window.first, 10);
  window = await readOn(read, window, {});
  assert.deepEqual(offsets(window), range(10, 1_000));
  assert.ok(window.isAtEnd);
});

test("an offset that is not there is the nearest one that is", async () => {
  const { read } = partitionOf(10, 100);
  assert.equal((await openWindow(read, "3", {})).first, 10);
  const after = await openWindow(read, "5000", {});
  assert.deepEqual([after.first, after.rows.length, after.isAtEnd], [100, 0, true]);
});

test("a step back with a filter goes on until a record fits, and then has all of the step", async () => {
  const { read } = partitionOf(0, 30_000);
  const filter = { type: "RunStarted" };
  let window = await openWindow(read, "", filter);
  assert.deepEqual(offsets(window), [25_000, 26_000, 27_000, 28_000, 29_000]);
  window = await readBack(read, window, filter);
  assert.deepEqual(offsets(window).slice(0, 2), [20_000, 21_000]);
});

test("a step back of several bounded answers has all of them", async () => {
  const { read, queries } = partitionOf(0, 10_000, { scan: 600 });
  const filter = { type: "RunStarted" };
  let window = await openWindow(read, "", filter);
  window = await readBack(read, window, filter);
  assert.deepEqual(offsets(window), range(0, 10).map((at) => at * 1_000));
  assert.ok(queries.length > 16);
});

test("of large records fewer are read at once, without a gap", async () => {
  const { read, queries } = partitionOf(0, 1_000, { scan: 4 });
  let window = await openWindow(read, "", {});
  assert.deepEqual(offsets(window), range(996, 1_000));
  queries.length = 0;
  window = await readBack(read, window, {});
  assert.deepEqual(offsets(window), range(976, 1_000));
  assert.ok(queries.length < 20);
});

test("where nothing fits, a bounded search stops and says how far it came", async () => {
  const { read, queries } = partitionOf(0, 100_000);
  const filter = { type: "Other" };
  let window = await openWindow(read, "90000", filter);
  queries.length = 0;
  window = await readBack(read, window, filter);
  assert.deepEqual([window.first, window.emptyBack, queries.length], [70_000, 1, 4]);
});

test("pages without a match are confirmed after a while, and a match begins anew", async () => {
  const { read } = partitionOf(0, 100_000, { scan: 100 });
  const filter = { type: "RunStarted" };
  let window = await openWindow(read, "1001", filter);
  for (let step = 0; step < 4; step += 1) window = await readOn(read, window, filter);
  assert.ok(hasPaused(window));
  while (window.next <= 2_000) window = await readOn(read, window, filter);
  assert.deepEqual(offsets(window), [2_000]);
  assert.ok(!hasPaused(window));
});

test("new records are added once, and the oldest are let go at the bound", async () => {
  let end = 300;
  const read = async (query) => partitionOf(0, end).read(query);
  let window = await openWindow(read, "", {});
  end = 302;
  window = await readOn(read, window, {});
  assert.deepEqual(offsets(window).slice(-3), [299, 300, 301]);
  window = { ...window, rows: range(0, ROWS_MAX).map((offset) => ({ offset })), first: 0, next: ROWS_MAX, cursor: "" };
  end = ROWS_MAX + 5;
  window = await readOn(read, window, {});
  assert.deepEqual([window.rows.length, window.first], [ROWS_MAX, 5]);
});

test("aggregates lead to their pages, with their tenant", () => {
  const path = (id, seq) => placeOfAggregate(id, seq)?.path;
  assert.equal(path("r_1"), "/runs/r_1/events");
  assert.deepEqual(placeOfAggregate("r_1", 4)?.query, { seq: 4 });
  assert.equal(path("memory:default/user/ann"), "/memory/user/ann");
  assert.equal(path("memory:default/agent/memory/consolidator"), "/memory/agent/memory%2Fconsolidator");
  assert.equal(path("memory:default/tenant"), "/memory/tenant");
  assert.equal(path("channel:default/_system%2Finterrupts%2Fresolved/user/ann"), "/channels/_system/interrupts/resolved");
  assert.equal(placeOfAggregate("channel:default/x/user/ann")?.query.scope_id, "ann");
  assert.equal(path("definition:/agent/a/b"), "/library/agent/a/b");
  assert.equal(path("webhook:acme/hook"), "/webhooks/acme/hook");
  assert.equal(path("counter:acme/a/b"), "/entities/counter");
  assert.equal(placeOfAggregate("counter:acme/a/b")?.query.id, "a/b");
  for (const id of ["", null, "nonsense", "javascript:alert(1)"]) assert.equal(placeOfAggregate(id), null);
});

test("a part that is wrongly escaped stays as it is", () => {
  assert.equal(placeOfAggregate("memory:default/user/%zz")?.path, "/memory/user/%25zz");
});

test("causes lead to the command and to the run whose call it was", () => {
  assert.deepEqual(placeOfCause({ topic: "loom.run.events", partition: 2, cause_offset: 7 }), { topic: "loom.run.commands", partition: 2, offset: 7 });
  assert.equal(placeOfCause({ topic: "loom.run.commands", partition: 2, cause_offset: 7 }), null);
  assert.equal(placeOfCause({ topic: "loom.run.events", partition: 2, cause_offset: null }), null);
  assert.equal(runOfCause("r_01m8:1.0"), "r_01m8");
  assert.equal(runOfCause("7fafr1"), null);
});

test("positions have both forms", () => {
  assert.deepEqual(parsePosition("loom.run.events/2:17"), { topic: "loom.run.events", partition: 2, offset: 17 });
  assert.deepEqual(parsePosition("loom.run.events/2/17"), { topic: "loom.run.events", partition: 2, offset: 17 });
  assert.equal(parsePosition("elsewhere"), null);
});

test("a record is got with the route that has it", () => {
  const of = (topic) => commandsOf({ topic, partition: 1, offset: 9 }, "http://x").curl;
  assert.match(of("loom.run.events"), /'http:\/\/x\/v1\/events\/loom.run.events\/1\/9'/);
  assert.match(of("loom.entity.events"), /_log\/topics\/loom.entity.events\/1\?from=9&limit=1'/);
});

test("bytes are shown with their characters, up to the bound", () => {
  const bytes = fromBase64(btoa("hello\n<b>wörld"));
  assert.equal(hexDump(bytes, 1_000).split("\n")[0], "000000  68 65 6c 6c 6f 0a 3c 62  hello.<b");
  assert.equal(hexDump(bytes, 8).split("\n").length, 1);
  assert.equal(hexDump(bytes, 3), "000000  68 65 6c                 hel");
  assert.deepEqual([...fromHex("00ff0a")], [0, 255, 10]);
});

test("a claim says who owns the partition, an unreadable record why it is", () => {
  assert.equal(claimText({ term_in_force: 3, payload: { owner: "vm-2", reason: "assigned" } }), "Term 3 begins: vm-2 owns the partition (assigned)");
  assert.equal(lineOf({ kind: "unreadable", error: "8 bytes are no record", payload: {} }), "8 bytes are no record");
});

test("topics are searched by every word, and say how long they keep records", () => {
  const topics = [{ name: "loom.run.events", kind: "events", about: "the source of truth" }, { name: "loom.dead-letter", kind: "dead_letters", about: "could not be handled" }];
  assert.deepEqual(searchTopics(topics, "dead letters").map((one) => one.name), ["loom.dead-letter"]);
  assert.equal(searchTopics(topics, "truth RUN").length, 1);
  assert.equal(searchTopics(topics, "").length, 2);
  const bytes = (value) => `${value} B`;
  assert.equal(retentionOf({ retention_ms: 1_209_600_000, retention_bytes: null }, bytes), "14 days");
  assert.equal(retentionOf({ retention_ms: 3_600_000, retention_bytes: 5 }, bytes), "1 hour or 5 B");
  assert.equal(retentionOf({ retention_ms: null, retention_bytes: null }, bytes), "for ever");
  assert.equal(retentionOf({ retention_ms: null, retention_bytes: null, is_compacted: true }, bytes), "newest of each key");
});

const WISH = { what: "all", run: "", partition: "", since: "", blobs: true, maxUnsigned: "" };

test("a verification is asked for as the form says, and on a command line alike", () => {
  assert.deepEqual(requestOf(WISH, NOW).body, {});
  assert.deepEqual(requestOf({ ...WISH, what: "entities", partition: "2", since: "24h", blobs: false, maxUnsigned: "60" }, NOW).body, { entities: true, partition: 2, since: new Date(NOW - 86_400_000).toISOString(), blobs: false, max_unsigned_s: 60 });
  assert.deepEqual(requestOf({ ...WISH, what: "run", run: " r_1 ", since: "24h" }, NOW).body, { run_id: "r_1" });
  assert.equal(commandOf({ run_id: "r_1", blobs: false }), "loomlog audit verify --run r_1 --no-blobs");
  assert.equal(commandOf({ run_id: "memory:a/b'; rm" }), "loomlog audit verify --run 'memory:a/b'\\''; rm'");
});

test("a form that is wrong says which field", () => {
  assert.deepEqual(Object.keys(requestOf({ ...WISH, what: "run" }, NOW).problems), ["run"]);
  assert.deepEqual(Object.keys(requestOf({ ...WISH, since: "12", partition: "-1", maxUnsigned: "x" }, NOW).problems).sort(), ["maxUnsigned", "partition", "since"]);
});

test("progress keeps the newest of each partition, and the result is kept", () => {
  const frame = (partition, next) => ({ event: "progress", data: { topic: "t", partition, next_offset: next, end_offset: 9, records: next, seconds: 1 } });
  const state = fold(fold(NOTHING, [frame(0, 3), frame(1, 2)]), [frame(0, 9), { event: "result", data: { clean: true } }]);
  assert.deepEqual(state.places.map((place) => [place.partition, place.next_offset]), [[0, 9], [1, 2]]);
  assert.equal(state.result.clean, true);
  assert.equal(fold(NOTHING, [{ event: "error", data: { code: "log_unavailable" } }]).error.code, "log_unavailable");
});

const partition = (more = {}) => ({ covered: 90, unsigned: 10, uncounted: 0, keys: [{ key_id: "a", first_offset: 0, next_offset: 90, checkpoints: 3 }], unknown_keys: {}, findings: [], ...more });

test("the verdict is green only when signatures cover something", () => {
  const result = { clean: true, records: 100, violations: 0, partitions: [partition()] };
  assert.equal(verdictOf(result).tone, "good");
  assert.equal(verdictOf({ ...result, partitions: [partition({ covered: 0 })] }).tone, "warn");
  assert.equal(verdictOf({ ...result, records: 0 }).tone, "warn");
  const bad = verdictOf({ ...result, clean: false, violations: 1, partitions: [partition({ uncounted: 4 })] });
  assert.equal(bad.tone, "bad");
  assert.match(bad.title, /^1 violation:/);
  assert.match(bad.text, /4 further violations/);
});

test("violations are listed first, and keys are added up", () => {
  const finding = (kind, violation) => ({ kind, violation });
  const result = { partitions: [partition({ findings: [finding("unsigned", false), finding("stale", false), finding("edited", true)] }), partition({ unknown_keys: { b: 2 } })] };
  assert.deepEqual(findingsOf(result).map((one) => one.kind), ["edited", "stale"]);
  assert.deepEqual(keysOf(result), [{ key_id: "a", checkpoints: 6, records: 180, isKnown: true }, { key_id: "b", checkpoints: 2, records: 0, isKnown: false }]);
});
