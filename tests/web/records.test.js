// The rows of a run's records, over records of a real run.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { PROBLEMS, ROUTINE, commandsOf, foldedTypes, lineOf, rowsOf, toneOf } from "../../services/web/pages/run/records.js";

const events = JSON.parse(readFileSync(new URL("events_interactive.json", import.meta.url), "utf8"));
const seqs = (rows) => rows.flatMap((row) => (row.kind === "record" ? [row.event.seq] : row.events.map((event) => event.seq)));

test("without a filter every record is a row", () => {
  assert.deepEqual(seqs(rowsOf(events)), events.map((event) => event.seq));
});

test("routine records in a row become one line, and none is lost", () => {
  const rows = rowsOf(events, { isFolded: true });
  assert.deepEqual(seqs(rows), events.map((event) => event.seq));
  assert.ok(rows.every((row) => row.kind === "fold" || !ROUTINE.has(row.event.type)));
  const first = rows.find((row) => row.kind === "fold" && row.events.length === 4);
  assert.equal(foldedTypes(first.events), "ToolCallRequested ×4");
});

test("an opened fold shows all of its records, and others stay folded", () => {
  const fold = rowsOf(events, { isFolded: true }).find((row) => row.kind === "fold" && row.events.length === 4);
  const rows = rowsOf(events, { isFolded: true, opened: new Set([fold.key]) });
  for (const event of fold.events) assert.ok(rows.some((row) => row.kind === "record" && row.event === event));
  assert.ok(rows.some((row) => row.kind === "fold"));
});

test("the record that is looked at is never folded away", () => {
  assert.ok(rowsOf(events, { isFolded: true, kept: 5 }).some((row) => row.kind === "record" && row.event.seq === 5));
});

test("a filter takes every word, anywhere in the record", () => {
  assert.deepEqual(rowsOf(events, { type: "RunParked" }).map((row) => row.event.type), Array(5).fill("RunParked"));
  const found = rowsOf(events, { text: "GREEN options" });
  assert.ok(found.some((row) => row.event.type === "InterruptionOpened") && found.length < events.length);
  for (const row of found) for (const word of ["green", "options"]) assert.ok(JSON.stringify(row.event).toLowerCase().includes(word));
  assert.equal(rowsOf(events, { text: "xyzzy" }).length, 0);
});

test("the first record of another owner is marked and never folded", () => {
  const moved = events.slice(0, 6).map((event) => (event.seq >= 5 ? { ...event, term: event.term + 3 } : event));
  const rows = rowsOf(moved, { isFolded: true });
  assert.deepEqual(rows.filter((row) => row.kind === "record" && row.newTerm).map((row) => row.event.seq), [5]);
});

test("a line says what a record holds, without breaks and never long", () => {
  const one = (type) => lineOf(events.find((event) => event.type === type));
  assert.equal(one("InterruptionOpened"), "Which colour shall the report have?");
  assert.match(one("ModelReplied"), /^I look around first\. \[Memory, Context, Glob, Grep\] 11 in, 7 out$/);
  assert.match(one("RunPaused"), /turn 8, reason lunch/);
  for (const event of events) assert.ok(lineOf(event).length <= 201 && !lineOf(event).includes("\n"));
});

test("failures and warnings have their tone", () => {
  assert.equal(toneOf(events.find((event) => event.type === "ToolReturned" && event.payload.is_error)), "bad");
  assert.equal(toneOf(events.find((event) => event.type === "RunPaused")), "warn");
  assert.equal(toneOf(events.find((event) => event.type === "ModelReplied")), "");
});

test("failures and warnings can be looked for together", () => {
  assert.deepEqual(rowsOf(events, { type: PROBLEMS }).map((row) => row.event.type), ["ToolReturned", "RunPauseRequested", "RunPaused"]);
});

test("the commands name the place of the record", () => {
  const { curl, cli } = commandsOf(events[3], "http://host:1");
  assert.match(cli, /^loomlog events get loom\.run\.events\/\d+\/\d+$/);
  assert.ok(curl.includes(`http://host:1/v1/events/${cli.split(" ").pop()}`));
});
