// How a run stands, in one word and one tone, wherever it is shown: green is what was done to its end. No document: tested without a browser.

/** Reasons for which a run that counts as completed was cut off: its turns were used up, or its last answer was. */
const CUT_OFF = { max_iterations: "It used all of its turns.", max_tokens: "Its last answer reached its longest length." };

/** Tone and icon of each word. @type {Record<string, [string, string]>} */
export const LOOKS = {
  running: ["live", "circle-dot"],
  completed: ["good", "circle-check"],
  "cut off": ["warn", "circle-alert"],
  "child failed": ["warn", "circle-alert"],
  failed: ["bad", "circle-x"],
  cancelled: ["", "circle-slash"],
  quarantined: ["bad", "octagon-x"],
  paused: ["warn", "circle-pause"],
  "waits for an answer": ["warn", "message-square"],
  "waits for input": ["info", "clock"],
  skipped: ["warn", "circle-slash"],
};

/**
 * @typedef {{status?: string, quarantined?: boolean, paused?: boolean, parked?: boolean, awaited_state?: string | null, stop_reason?: string | null, failed_children?: number, error?: string | null, quarantine_error?: string | null, pause_reason?: string | null, awaited_on?: string | null}} Stand
 *   What of a run says how it stands.
 */

/**
 * The word that says most about a run: its status, why it stands still, or what kept it from its end.
 * @param {Stand} run
 * @returns {string}
 */
export function standOf(run) {
  if (run.quarantined) return "quarantined";
  if (run.status === "completed") return isCutOff(run.stop_reason) ? "cut off" : run.failed_children ? "child failed" : "completed";
  if (run.status !== "running") return run.status ?? "";
  if (run.paused) return "paused";
  if (run.awaited_state === "interrupted") return "waits for an answer";
  if (run.parked || run.awaited_state === "awaiting_input") return "waits for input";
  return "running";
}

/** @param {string | null | undefined} reason */
export const isCutOff = (reason) => Boolean(reason && Object.hasOwn(CUT_OFF, reason));

/** Tone of how a run stands. @param {Stand} run @returns {string} */
export const toneOf = (run) => (LOOKS[standOf(run)] ?? [""])[0];

/** Why it stands so, where that is known. @param {Stand} run @returns {string} */
export function whyOf(run) {
  const stand = standOf(run);
  if (stand === "cut off") return CUT_OFF[run.stop_reason ?? ""];
  if (stand === "child failed") return `${run.failed_children} of its children failed.`;
  return run.error || run.quarantine_error || run.pause_reason || run.awaited_on || run.stop_reason || "";
}
