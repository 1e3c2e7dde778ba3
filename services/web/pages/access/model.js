// What the pages of access make of forms and answers.

/** Scopes of tokens, the widest first, with what each permits. @type {[string, string][]} */
export const SCOPES = [
  ["substrate:admin", "everything, in all tenants"],
  ["substrate:tenant", "operate the tenant: definitions, users, credentials, limits"],
  ["substrate:user", "isolated: own runs only"],
  ["runs:create", "start, steer and end runs"],
  ["runs:read", "see runs"],
  ["channel:publish", "publish to channels"],
  ["channel:read", "read channels"],
  ["memory:write", "set keys of memory"],
  ["providers:operator-key", "use the operator's keys of model providers"],
  ["tenant:read", "see definitions, memory and models"],
];

/** Access modes of users, with what each permits. @type {Record<string, string>} */
export const MODES = { tenant: "sees what the tenant has", isolated: "sees its own data only" };

/**
 * What a form sends: its fields without spaces around them, and without those that are empty.
 * @param {Record<string, any>} form
 */
export function bodyOf(form) {
  const fields = Object.entries(form).map(([name, value]) => [name, typeof value === "string" ? value.trim() : value]);
  return Object.fromEntries(fields.filter(([, value]) => value !== "" && value !== false));
}

/**
 * State of a token: whether its text gives access now, and if not, why.
 * @param {{active: boolean, retired?: boolean, retired_at?: string, expires_at?: string}} token @param {number} now milliseconds
 * @returns {[string, string]} tone and word
 */
export function tokenState(token, now) {
  const ends = token.retired_at ? Date.parse(token.retired_at) : NaN;
  if (token.active) return ends > now ? ["warn", "rotated"] : ["good", "in force"];
  if (token.retired_at || token.retired) return ["", "retired"];
  return token.expires_at && Date.parse(token.expires_at) <= now ? ["", "expired"] : ["", "without effect"];
}
