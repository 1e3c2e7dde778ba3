// A fork as it is asked for: where it may begin, the body of the request, and the same as a command. Pure.
import { shellWord } from "../../values.js";

/**
 * Moments at which a fork is usual, newest first: before the call of each turn, so that the fork makes that call anew, and the newest record.
 * @param {any[]} events @returns {{seq: number, title: string, turn: number}[]}
 */
export function forkPoints(events) {
  const points = [];
  let turn = 0;
  for (const { type, seq, payload } of events) {
    if (type !== "ModelCallRequested" || payload.turn === turn || seq < 2) continue;
    turn = payload.turn;
    points.push({ seq: seq - 1, title: `Before turn ${turn}: its call of the model is made anew`, turn });
  }
  const last = events[events.length - 1];
  if (last && points[points.length - 1]?.seq !== last.seq) points.push({ seq: last.seq, title: `After the newest record (${last.type})`, turn: 0 });
  return points.reverse();
}

/** @typedef {{at: number, prompt: string, agent: string, definition: string, provider: string, model: string, effort: string, systemPrompt: string, maxTokens: string, temperature: string, interactive: string}} ForkForm interactive: "", "yes" or "no" */

/** @type {Omit<ForkForm, "at">} */
export const EMPTY_FORK = { prompt: "", agent: "", definition: "", provider: "", model: "", effort: "", systemPrompt: "", maxTokens: "", temperature: "", interactive: "" };

/** Changes of the definition by their names in the API; what is empty stays as it is. @param {ForkForm} form */
function overridesOf(form) {
  /** @type {Record<string, any>} */
  const changes = {};
  if (form.provider.trim()) changes.provider = form.provider.trim();
  if (form.model.trim()) changes.model = form.model.trim();
  if (form.effort) changes.effort = form.effort;
  if (form.systemPrompt.trim()) changes.system_prompt = form.systemPrompt;
  if (form.maxTokens.trim()) changes.max_tokens = Number(form.maxTokens);
  if (form.temperature.trim()) changes.temperature = Number(form.temperature);
  return changes;
}

/** The body of POST /v1/runs/{id}/fork. @param {ForkForm} form */
export function bodyOf(form) {
  const overrides = overridesOf(form);
  return {
    at: form.at,
    ...(form.prompt.trim() ? { prompt: form.prompt } : {}),
    ...(form.agent ? { agent: form.agent } : {}),
    ...(form.definition && !form.agent ? { definition: form.definition } : {}),
    ...(Object.keys(overrides).length ? { overrides } : {}),
    ...(form.interactive ? { interactive: form.interactive === "yes" } : {}),
  };
}

/** Why a form cannot be sent, by field. @param {ForkForm} form @param {boolean} needsPrompt @returns {Record<string, string>} */
export function problemsOf(form, needsPrompt) {
  /** @type {Record<string, string>} */
  const problems = {};
  if (needsPrompt && !form.prompt.trim()) problems.prompt = "The model has already answered there: say what comes next.";
  if (form.maxTokens.trim() && !/^\d{1,10}$/.test(form.maxTokens.trim())) problems.maxTokens = "A whole number of tokens.";
  if (form.temperature.trim() && !(Number(form.temperature) >= 0 && Number(form.temperature) <= 2)) problems.temperature = "A number from 0 to 2.";
  return problems;
}

/** The same fork from the command line. @param {string} runId @param {ForkForm} form */
export function commandOf(runId, form) {
  const parts = ["loomlog runs fork", runId, "--at", String(form.at)];
  if (form.prompt.trim()) parts.push("--prompt", shellWord(form.prompt));
  if (form.agent) parts.push("--agent", shellWord(form.agent));
  else if (form.definition) parts.push("--definition", shellWord(form.definition));
  for (const [name, value] of Object.entries(overridesOf(form))) parts.push("--set", shellWord(`${name}=${value}`));
  return parts.join(" ");
}
