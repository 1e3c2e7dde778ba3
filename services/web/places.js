// The page of an id or of a record, as a path below /ui. No part of the page is needed here.

/** Records are told as `loom.topic/partition:offset`, and found with a slash or a colon before the offset. */
const RECORD = /^(loom\.[\w.-]+)\/(\d+)[/:](\d+)$/;
/** `<family>:<tenant>/<name>`, of which the tenant may be empty. */
const AGGREGATE = /^[a-z_]+:[^/\s]*\/.+$/s;

/** Longest text of the jump box; the API takes a start or an end of an id that is as long. */
export const JUMP_MAX = 256;
/** What can be a whole id. */
const ID = /^[A-Za-z0-9_-]{1,128}$/;
/** Characters behind the kind of an id, such as `r_`, from which on it is taken for whole. */
const WHOLE = /^[a-z]+_[A-Za-z0-9-]{16,}$/;

/**
 * The page of an id: of a run, of a record, of a definition, of an aggregate. Anything else, such as the end of an id as pages show it or
 * words, is searched for in the runs; it is never an address that the API refuses.
 * @param {string} given
 */
export function placeOf(given) {
  const text = given.trim().replace(/^…+|…+$/g, "").slice(0, JUMP_MAX);
  const record = RECORD.exec(text);
  if (record) return `/log/${record[1]}/${record[2]}?from=${record[3]}`;
  if (/^def_/.test(text) && WHOLE.test(text)) return `/library/version/${encodeURIComponent(text)}`;
  if (/^(r|run)_/.test(text) && ID.test(text)) return `/runs/${encodeURIComponent(text)}`;
  if (/^(s|ses|session)_/.test(text) && ID.test(text)) return `/runs?session_id=${encodeURIComponent(text)}`;
  if (AGGREGATE.test(text)) return recordsOf(text);
  return `/runs?id=${encodeURIComponent(text)}`;
}

/**
 * The records of an aggregate in the log, from a time on and of one type when these are given.
 * @param {string} aggregate `<family>:<tenant>/<name>` @param {{from?: string, type?: string}} [filter] from: a time
 */
export function recordsOf(aggregate, { from = "", type = "" } = {}) {
  const query = new URLSearchParams({ ...(from ? { from } : {}), ...(type ? { type } : {}) }).toString();
  return `/log/aggregate/${encodeURIComponent(aggregate)}${query ? `?${query}` : ""}`;
}

/** A record of a run, on the page of its events. @param {string} run @param {{seq?: number, type?: string, text?: string}} which */
export function recordOfRun(run, { seq, type = "", text = "" }) {
  const query = new URLSearchParams({ ...(seq ? { seq: String(seq) } : {}), ...(type ? { type } : {}), ...(text ? { text } : {}) });
  return `/runs/${encodeURIComponent(run)}/events?${query}`;
}
