// Verifications of the log: what is asked for, how far it is, and its result as a verdict. Pure.
import { parsePlace } from "./model.js";
import { shellWord } from "../../values.js";

/** What each kind of finding means. @type {Record<string, string>} */
export const FINDINGS = {
  edited: "The record is not the one that was signed, or the hash chain of its run contradicts it.",
  removed: "A record that was written is gone.",
  inserted: "A record was put in that its owner did not write there.",
  reordered: "Records are in another order than they were written.",
  truncated: "The end of the partition is gone: more was signed than is there.",
  unreadable: "Bytes that cannot be decoded.",
  illegal: "As it was signed, but against the rules of the log: written by a defect or by a program that must not write.",
  unknown_key: "A checkpoint signed with a key that is not trusted here; it does not count.",
  bad_signature: "A checkpoint whose signature does not fit: it was changed or forged.",
  missing_blob: "A payload that an event names is not in the blob store.",
  damaged_blob: "A payload that an event names has another size or hash.",
  unsigned_too_long: "It should have been signed by now: the auditor does not run, or does not sign.",
  stale: "A late record of a replaced owner; readers ignore it. No violation.",
  unsigned: "Newer than the last checkpoint: covered by the hash chains of the runs alone. No violation.",
};

/** @typedef {{what: string, run: string, partition: string, since: string, blobs: boolean, maxUnsigned: string}} Wish */

/**
 * The request of POST /v1/_audit/verify, or what is wrong with a field.
 * @param {Wish} wish @param {number} nowMs
 * @returns {{body?: Record<string, any>, problems: Record<string, string>}}
 */
export function requestOf(wish, nowMs) {
  /** @type {Record<string, string>} */
  const problems = {};
  /** @type {Record<string, any>} */
  const body = {};
  if (wish.what === "run") {
    if (!wish.run.trim()) problems.run = "Give the id of a run (r_…) or of an aggregate (family:tenant/name).";
    else body.run_id = wish.run.trim();
  } else {
    if (wish.what === "entities" || wish.what === "channels") body[wish.what] = true;
    if (wish.partition.trim()) {
      if (/^\d{1,6}$/.test(wish.partition.trim())) body.partition = Number(wish.partition);
      else problems.partition = "A number from 0 on.";
    }
    if (wish.since.trim()) {
      const { from = "", problem } = parsePlace(wish.since, nowMs);
      if (problem || !from.includes("T")) problems.since = "An age (24h, 7d) or a time (2026-01-31 12:00).";
      else body.since = from;
    }
  }
  if (!wish.blobs) body.blobs = false;
  if (wish.maxUnsigned.trim()) {
    if (/^\d{1,8}$/.test(wish.maxUnsigned.trim())) body.max_unsigned_s = Number(wish.maxUnsigned);
    else problems.maxUnsigned = "Seconds, such as 60.";
  }
  return Object.keys(problems).length ? { problems } : { body, problems };
}

/** The same on a command line. @param {Record<string, any>} body */
export function commandOf(body) {
  const options = [
    body.run_id && `--run ${shellWord(body.run_id)}`,
    body.partition !== undefined && `--partition ${body.partition}`,
    body.since && `--since ${body.since}`,
    body.entities && "--entities",
    body.channels && "--channels",
    body.max_unsigned_s !== undefined && `--max-unsigned-s ${body.max_unsigned_s}`,
    body.blobs === false && "--no-blobs",
  ].filter(Boolean);
  return ["loomlog audit verify", ...options].join(" ");
}

/**
 * Frames of the stream folded: the newest progress of each partition, in the order in which they came up.
 * @param {{places: any[], records: number, seconds: number, result: any, error: any}} state
 * @param {{event: string, data: any}[]} frames
 */
export function fold(state, frames) {
  let { places, records, seconds, result, error } = state;
  for (const { event, data } of frames) {
    if (event === "progress") {
      const at = places.findIndex((place) => place.topic === data.topic && place.partition === data.partition);
      places = at < 0 ? [...places, data] : places.with(at, data);
      ({ records, seconds } = data);
    } else if (event === "result") result = data;
    else if (event === "error") error = data;
  }
  return { places, records, seconds, result, error };
}

export const NOTHING = { places: [], records: 0, seconds: 0, result: null, error: null };

const count = (value) => Number(value).toLocaleString("en");
const plural = (value, word) => `${count(value)} ${word}${value === 1 ? "" : "s"}`;

/**
 * @param {any} result of a verification
 * @returns {{tone: "good" | "bad" | "warn", title: string, text: string}}
 */
export function verdictOf(result) {
  const sum = (name) => result.partitions.reduce((total, one) => total + one[name], 0);
  const scope = `${plural(result.records, "record")} of ${plural(result.partitions.length, "partition")}`;
  if (!result.clean) {
    const rest = sum("uncounted");
    return { tone: "bad", title: `${plural(result.violations, "violation")}: the log is not what was written and signed`, text: `${scope} were verified.${rest ? ` ${count(rest)} further violations are counted, but not listed.` : ""}` };
  }
  if (!result.records) return { tone: "warn", title: "There was nothing to verify", text: "No record is in what was asked for." };
  const covered = sum("covered");
  if (!covered) return { tone: "warn", title: "The hash chains fit, but nothing is signed", text: `${scope} were verified. Without signed checkpoints a program that can write to the broker could also write other chains.` };
  const unsigned = sum("unsigned");
  return { tone: "good", title: "The log is what was written and signed", text: `${scope} were verified, ${count(covered)} are covered by signatures${unsigned ? `; ${count(unsigned)} are newer than the last checkpoint and covered by hash chains alone` : ""}.` };
}

/** The findings to list, violations first; how much is unsigned is said of each partition. @param {any} result */
export const findingsOf = (result) => result.partitions.flatMap((one) => one.findings.filter((finding) => finding.kind !== "unsigned")).sort((a, b) => Number(b.violation) - Number(a.violation));

/** Keys that signed what was verified, with how much each did. @param {any} result */
export function keysOf(result) {
  /** @type {Map<string, {key_id: string, checkpoints: number, records: number, isKnown: boolean}>} */
  const keys = new Map();
  const add = (id, isKnown, checkpoints, records) => {
    const key = keys.get(id) ?? { key_id: id, checkpoints: 0, records: 0, isKnown };
    keys.set(id, { ...key, checkpoints: key.checkpoints + checkpoints, records: key.records + records });
  };
  for (const one of result.partitions) {
    for (const range of one.keys) add(range.key_id, true, range.checkpoints, range.next_offset - range.first_offset);
    for (const [id, checkpoints] of Object.entries(one.unknown_keys)) add(id, false, Number(checkpoints), 0);
  }
  return [...keys.values()];
}
