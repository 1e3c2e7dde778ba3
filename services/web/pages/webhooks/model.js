// What the pages of webhooks say and compute, without a document.
import { parseJson, printJson } from "../../exact_json.js";

/** What became of a delivery: [tone, word, what it means]. @type {Record<string, [string, string, string]>} */
export const VERDICTS = {
  accepted: ["good", "accepted", "It was taken"],
  accepted_replay: ["info", "repeated", "Its id was taken before: nothing happened again, and the sender got the first answer"],
  rejected_sig: ["bad", "not proven", "The signature or token is missing or wrong"],
  rejected_body: ["bad", "bad body", "The body is too large, or is no JSON"],
  rejected_mapping: ["bad", "does not fit", "The body is no JSON, or does not fit the mapping"],
  rejected_rate: ["warn", "rate limit", "More came than the limit allows; the sender may try again"],
  rejected_publish: ["bad", "not published", "The channel did not take the message"],
  rejected_delivery: ["bad", "bad delivery", "The delivery id or the request cannot be taken"],
  rejected_unknown_user_tier: ["bad", "unknown tier", "The tier of the user is unknown"],
  unresolvable_secret: ["bad", "no secret", "The environment variable with the secret is not set where the api runs"],
};

/** @param {string} verdict @returns {[string, string, string]} */
export const verdictOf = (verdict) => VERDICTS[verdict] ?? [verdict.startsWith("rejected") ? "bad" : "", verdict.replace(/^rejected_/, "").replaceAll("_", " "), ""];

/** What else is known of a delivery, in one line. @param {any} one */
export function detailOf(one) {
  const metadata = Object.entries(one.run_metadata ?? {}).map(([name, text]) => `${name}: ${plain(text)}`);
  return [one.detail, one.code, one.replay_of ? `replay of ${one.replay_of}` : "", one.by ? `by ${one.by}` : "", ...metadata].filter(Boolean).join(" · ");
}

/** A value of the metadata, which comes as JSON text. @param {any} text */
function plain(text) {
  if (typeof text !== "string") return printJson(text);
  try {
    const value = parseJson(text);
    return typeof value === "string" ? value : text;
  } catch {
    return text;
  }
}

const DEFAULT_HEADER = "X-Loomlog-Signature";

/** The address below the server's. Of a file or shared by all tenants: the bare name. @param {{source: string, tenant_id: string, name: string}} row */
export const addressOf = (row) => (row.source === "tenant" && row.tenant_id ? `${row.tenant_id}/${row.name}` : row.name);

/** @param {string} address */
export const addressPath = (address) => `/v1/_webhooks/${address.split("/").map(encodeURIComponent).join("/")}`;

/** Tenant and name of an address. @param {string} address @returns {{tenant: string, name: string}} */
export function partsOf(address) {
  const at = address.indexOf("/");
  return at < 0 ? { tenant: "", name: address } : { tenant: address.slice(0, at), name: address.slice(at + 1) };
}

/** How a sender proves itself: the header, where the secret is, and in words. @param {any} auth */
export function proofOf(auth) {
  if (auth?.kind === "hmac") {
    const header = auth.header || DEFAULT_HEADER;
    const isStripe = /^stripe-signature$/i.test(header);
    return { kind: "hmac", word: "signature", header, variable: auth.signing_secret_env ?? "", isTimed: isStripe, text: isStripe ? "HMAC-SHA256 of time and body, as t=…,v1=…; at most 5 minutes old" : "HMAC-SHA256 of the body, as sha256=HEX or bare hex" };
  }
  if (auth?.kind === "bearer") {
    const header = auth.header || "Authorization";
    return { kind: "bearer", word: "token", header, variable: auth.bearer_token_env ?? "", isTimed: false, text: /^authorization$/i.test(header) ? "Authorization: Bearer TOKEN" : "the token as it is" };
  }
  return { kind: "none", word: "none", header: "", variable: "", isTimed: false, text: "Nothing is checked: only with LOOMLOG_WEBHOOKS_ALLOW_UNAUTHENTICATED=1" };
}

/** Where a value of the run comes from. @param {string} expression */
export function sourceWords(expression) {
  if (expression === "$") return "the whole body";
  return expression.startsWith("$") ? "the body at" : "always";
}

/** The mapping as rows; without a goal the body is the goal. @param {any} definition @returns {{target: string, from: string, isPath: boolean}[]} */
export function mappingRows(definition) {
  const rows = Object.entries(definition.payload_mapping ?? {}).map(([target, from]) => ({ target, from: String(from), isPath: String(from).startsWith("$") }));
  return rows.some((row) => row.target === "goal") ? rows : [{ target: "goal", from: "$", isPath: true }, ...rows];
}

/** A command with which a sender can be tried. @param {string} url @param {ReturnType<typeof proofOf>} proof */
export function curlOf(url, proof) {
  const body = `BODY='{"goal": "look at this"}'`;
  const post = `curl ${url} -H 'content-type: application/json'`;
  if (proof.kind === "hmac" && proof.isTimed) {
    return `${body}; T=$(date +%s); SIG=$(printf %s "$T.$BODY" | openssl dgst -sha256 -hmac "$SECRET" | sed 's/.* //')\n${post} -H "${proof.header}: t=$T,v1=$SIG" -d "$BODY"`;
  }
  if (proof.kind === "hmac") return `${body}; SIG=$(printf %s "$BODY" | openssl dgst -sha256 -hmac "$SECRET" | sed 's/.* //')\n${post} -H "${proof.header}: sha256=$SIG" -d "$BODY"`;
  const token = /^authorization$/i.test(proof.header) ? '-H "Authorization: Bearer $TOKEN" ' : proof.header ? `-H "${proof.header}: $TOKEN" ` : "";
  return `${post} ${token}-d '{"goal": "look at this"}'`;
}

/** The header with the proof, made from a secret in this browser. @param {ReturnType<typeof proofOf>} proof @param {string} secret @param {string} body @param {number} nowMs @returns {Promise<Record<string, string>>} */
export async function proofHeaders(proof, secret, body, nowMs) {
  if (proof.kind === "bearer") return { [proof.header]: secret };
  const time = Math.floor(nowMs / 1_000);
  const hex = await hmac(secret, proof.isTimed ? `${time}.${body}` : body);
  return { [proof.header]: proof.isTimed ? `t=${time},v1=${hex}` : `sha256=${hex}` };
}

async function hmac(secret, text) {
  const encoder = new TextEncoder();
  const key = await crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  const bytes = new Uint8Array(await crypto.subtle.sign("HMAC", key, encoder.encode(text)));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Headers that a page may not set, or that would be taken for the caller's own. */
const REFUSED = /^(authorization|cookie|host|content-length|connection|origin|referer|sec-.*|proxy-.*)$/i;
const NAME = /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/;

/** Headers of lines `Name: value`, or the line that is none. @param {string} text @returns {{headers: Record<string, string>, problem: string}} */
export function parseHeaders(text) {
  /** @type {Record<string, string>} */
  const headers = {};
  for (const line of text.split("\n").map((one) => one.trim()).filter(Boolean)) {
    const at = line.indexOf(":");
    const name = line.slice(0, at).trim();
    const value = line.slice(at + 1).trim();
    if (at < 1 || !NAME.test(name)) return { headers, problem: `"${line.slice(0, 60)}" is no header: expected Name: value.` };
    if (REFUSED.test(name)) return { headers, problem: `A browser cannot send ${name}: try it with loomlog webhooks test.` };
    if ([...value].some((one) => one.charCodeAt(0) > 255 || one.charCodeAt(0) < 32)) return { headers, problem: `The value of ${name} has characters that a header cannot have.` };
    headers[name.toLowerCase()] = value;
  }
  return { headers, problem: "" };
}
