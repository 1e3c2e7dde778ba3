// A start as it is sent: from what the form holds to the body of POST /v1/runs, and the same start as curl and command line.
import { parseJson, printJson } from "../../exact_json.js";
import { shellWord } from "../../values.js";

export const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/** Runs of one POST /v1/runs:batch. */
export const BATCH_MAX = 32;
/** Runs of one fan-out: ten requests. */
export const FAN_OUT_MAX = 320;
/** Bytes of all images of a start: a server takes requests of some megabytes by default, and base64 adds a third. */
export const IMAGE_BYTES_MAX = 4 * 1024 * 1024;

/**
 * @typedef {{agent: string, prompt: string, user_id: string, user_tier: string, hosts: "operator" | "none" | "some", hostList: string, metadata: string, interactive: boolean, session_id: string, timeout: string, agent_id: string, images: {name: string, media_type: string, data: string, bytes: number}[]}} Draft
 */

/** @returns {Draft} */
export const emptyDraft = () => ({ agent: "", prompt: "", user_id: "", user_tier: "", hosts: "operator", hostList: "", metadata: "", interactive: false, session_id: "", timeout: "", agent_id: "", images: [] });

/**
 * The body of a start, or what is wrong with the form by field.
 * @param {Draft} draft @param {{needsPrompt?: boolean}} [options]
 * @returns {{body: any, problems: Record<string, string>}}
 */
export function bodyOf(draft, { needsPrompt = true } = {}) {
  /** @type {Record<string, string>} */
  const problems = {};
  /** @type {any} */
  const body = { agent: draft.agent };
  if (!draft.agent) problems.agent = "Choose an agent.";
  if (draft.images.length) {
    const content = draft.images.map((image) => ({ type: "image", media_type: image.media_type, data: image.data }));
    body.segments = [{ role: "user", content: draft.prompt.trim() ? [{ type: "trusted-text", text: draft.prompt }, ...content] : content }];
    if (draft.images.reduce((sum, image) => sum + image.bytes, 0) > IMAGE_BYTES_MAX) problems.images = `All images together may have ${IMAGE_BYTES_MAX / 1024 / 1024} MiB.`;
  } else if (draft.prompt.trim()) body.prompt = draft.prompt;
  else if (needsPrompt) problems.prompt = "Say what the agent is to do.";
  for (const name of ["session_id", "user_id", "user_tier", "agent_id"]) {
    const value = draft[name].trim();
    if (value) body[name] = value;
  }
  for (const name of ["session_id", "user_id", "agent_id"]) {
    if (body[name] && !/^[A-Za-z0-9_-]{0,128}$/.test(body[name])) problems[name] = "Letters, digits, _ and -, at most 128.";
  }
  if (draft.hosts === "none") body.allowed_hosts = [];
  if (draft.hosts === "some") {
    body.allowed_hosts = draft.hostList.split(/[\s,]+/).filter(Boolean);
    if (!body.allowed_hosts.length) problems.hostList = "Name at least one host, or choose none.";
  }
  if (draft.metadata.trim()) {
    try {
      body.metadata = parseJson(draft.metadata);
      if (body.metadata === null || typeof body.metadata !== "object" || Array.isArray(body.metadata)) problems.metadata = 'Expected an object, such as {"ticket": 17}.';
    } catch (error) {
      problems.metadata = `This is not JSON: ${/** @type {Error} */ (error).message}`;
    }
  }
  if (draft.timeout.trim()) {
    body.run_timeout_seconds = Number(draft.timeout);
    if (!Number.isInteger(body.run_timeout_seconds) || body.run_timeout_seconds < 1) problems.timeout = "A whole number of seconds.";
  }
  if (draft.interactive) body.interactive = true;
  return { body, problems };
}

/** The body with images named and not repeated. */
const readable = (body) =>
  printJson(body, (name, value) => (name === "data" && typeof value === "string" && value.length > 60 ? "BASE64 OF THE IMAGE" : value), 2);

/** @param {string} origin @param {string} path @param {any} body */
export function curlOf(origin, path, body) {
  return [
    `curl -N ${origin}${path}`,
    `  -H "authorization: Bearer $LOOMLOG_AUTH_TOKEN" -H 'content-type: application/json'`,
    `  -d ${shellWord(readable(body))}`,
  ].join(" \\\n");
}

/** The command line of a start, and the fields that it has no option for. @param {any} body */
export function commandOf(body) {
  const parts = ["loomlog run", shellWord(body.agent || "AGENT"), shellWord(body.prompt ?? "PROMPT")];
  if (body.session_id) parts.push("--session", body.session_id);
  const left = Object.keys(body).filter((name) => !["agent", "prompt", "session_id"].includes(name));
  return { command: parts.join(" "), left };
}

/**
 * The prompts of a fan-out. @param {string} text @param {"lines" | "blocks" | "times"} how @param {number} times
 * @returns {string[]}
 */
export function promptsOf(text, how, times) {
  if (how === "times") return text.trim() ? Array.from({ length: Math.max(0, Math.floor(times) || 0) }, () => text.trim()) : [];
  const parts = how === "lines" ? text.split(/\r?\n/) : text.split(/\r?\n[ \t]*\r?\n/);
  return parts.map((part) => part.trim()).filter(Boolean);
}

/** The starts of a fan-out in requests of at most 32. @param {any[]} spawns */
export function requestsOf(spawns) {
  const requests = [];
  for (let at = 0; at < spawns.length; at += BATCH_MAX) requests.push(spawns.slice(at, at + BATCH_MAX));
  return requests;
}

/** The first line of the last answer of a transcript. @param {{type: string, event: any}[]} frames */
export function answerOf(frames) {
  for (let at = frames.length - 1; at >= 0; at -= 1) {
    const text = frames[at].type === "text" ? (frames[at].event?.text ?? "").trim() : "";
    if (text) return text.split("\n", 1)[0];
  }
  return "";
}
