// Values of data and of forms as text: one line, a time for the API, a word of a shell command. No document: tested without a browser.
import { printJson } from "./exact_json.js";

/** One line that says most about a value. @param {any} value @param {number} [max] characters */
export function oneLine(value, max = 240) {
  const text = typeof value === "string" ? value : printJson(value);
  const line = (text ?? "").slice(0, max + 1).replace(/\s+/g, " ");
  return line.length > max ? `${line.slice(0, max)}…` : line;
}

/** RFC 3339 of what a field of date and time has, in this browser's zone; "" for an empty or impossible one. @param {string} local */
export function toRfc3339(local) {
  const at = local ? new Date(local) : null;
  return at && !Number.isNaN(at.getTime()) ? at.toISOString() : "";
}

/** A word of a command, as a POSIX shell reads it. @param {string} text */
export const shellWord = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
