// A budget limit as bars: how much of it is used, and what that means. No part of the page is needed here.

const DAY_MS = 86_400_000;

/**
 * @typedef {{unit: "tokens" | "money", used: number, reserved: number, soft: number | null, hard: number | null, currency: string | null, share: number, state: "good" | "warn" | "bad"}} Meter
 *   share: of the hard limit, or of the soft one where there is no other; 0 to 1
 */

/** The bars of a limit: one for tokens and one for money, as far as it limits them. @param {any} limit @returns {Meter[]} */
export function metersOf(limit) {
  const meters = [];
  if (limit.soft_limit !== null || limit.hard_limit !== null) meters.push(meter("tokens", limit.used, limit.reserved, limit.soft_limit, limit.hard_limit, null));
  if (limit.soft_limit_micros !== null || limit.hard_limit_micros !== null) {
    meters.push(meter("money", limit.used_micros, limit.reserved_micros, limit.soft_limit_micros, limit.hard_limit_micros, limit.currency));
  }
  return meters;
}

function meter(unit, used, reserved, soft, hard, currency) {
  const most = hard ?? soft ?? 0;
  const share = most > 0 ? Math.min(1, used / most) : 1;
  const state = hard !== null && used >= hard ? "bad" : soft !== null && used >= soft ? "warn" : "good";
  return /** @type {Meter} */ ({ unit, used, reserved, soft, hard, currency, share, state });
}

/** The account of a limit, as one text. @param {any} limit */
export const keyOf = (limit) => [limit.scope, limit.tenant_id, limit.scope === "user" ? limit.scope_id : ""].join("/");

/** The limit of which most is used, by the share of its bars. @param {any[]} limits */
export const tightest = (limits) => limits.reduce((most, one) => (shareOf(one) > shareOf(most) ? one : most), limits[0]);

const shareOf = (limit) => Math.max(0, ...metersOf(limit).map((one) => one.share));

/** The first day of the month of a time, in UTC, and the query of GET /v1/_usage for a limit. @param {any} limit @param {number} now milliseconds */
export function monthQuery(limit, now) {
  const from = `${new Date(now).toISOString().slice(0, 8)}01`;
  return { from, tenant: limit.scope === "operator" ? "" : limit.tenant_id, group_by: limit.scope === "user" ? "user,day" : "day" };
}

/**
 * What was used of a limit up to the end of each day of this month, and the amounts that limit it.
 * @param {any[]} rows of GET /v1/_usage with monthQuery @param {any} limit @param {"tokens" | "money"} unit @param {number} now
 */
export function monthOf(rows, limit, unit, now) {
  const first = Date.parse(monthQuery(limit, now).from);
  const counted = rows.filter((row) => (limit.scope !== "user" || row.user_id === limit.scope_id) && (unit === "tokens" || row.currency === limit.currency));
  const ofDay = new Map();
  for (const row of counted) {
    const amount = unit === "money" ? row.cost_micros : row.input_tokens + row.output_tokens + row.cache_creation_input_tokens + row.cache_read_input_tokens;
    ofDay.set(row.day, (ofDay.get(row.day) ?? 0) + amount);
  }
  const times = [];
  const used = [];
  let sum = 0;
  for (let ms = first; ms <= now; ms += DAY_MS) {
    sum += ofDay.get(new Date(ms).toISOString().slice(0, 10)) ?? 0;
    times.push(ms / 1_000);
    used.push(sum);
  }
  const line = (name, tone, value) => (value === null ? [] : [{ name, tone, values: times.map(() => value) }]);
  const [soft, hard] = unit === "money" ? [limit.soft_limit_micros, limit.hard_limit_micros] : [limit.soft_limit, limit.hard_limit];
  return { times, series: [{ name: "used", tone: "c1", fill: true, values: used }, ...line("soft limit", "warn", soft), ...line("hard limit", "bad", hard)] };
}

/** Whose limit it is, as words. @param {any} limit */
export function accountOf(limit) {
  if (limit.scope === "operator") return "the installation";
  if (limit.scope === "tenant") return `tenant ${limit.tenant_id}`;
  return `user ${limit.scope_id}${limit.tenant_id ? ` of ${limit.tenant_id}` : ""}`;
}

/**
 * The body of PUT /v1/_limits from the texts of a form; an empty text is no limit. Throws what is wrong in plain words.
 * @param {{scope: string, tenant: string, user: string, softTokens: string, hardTokens: string, softMoney: string, hardMoney: string, strict: boolean}} form
 */
export function limitBody(form) {
  const body = /** @type {any} */ ({ scope: form.scope, strict: form.strict });
  if (form.scope !== "operator" && form.tenant.trim()) body.tenant_id = form.tenant.trim();
  if (form.scope === "user") {
    if (!form.user.trim()) throw new Error("A limit of a user needs the user.");
    body.scope_id = form.user.trim();
  }
  const amounts = {
    soft_limit: whole("Tokens, soft", form.softTokens),
    hard_limit: whole("Tokens, hard", form.hardTokens),
    soft_limit_micros: micros("Money, soft", form.softMoney),
    hard_limit_micros: micros("Money, hard", form.hardMoney),
  };
  for (const [name, value] of Object.entries(amounts)) if (value !== null) body[name] = value;
  if (Object.values(amounts).every((value) => value === null)) throw new Error("Give at least one of the four amounts. To end a limit, remove it.");
  if (form.strict && amounts.hard_limit === null) throw new Error("Strict needs a hard limit of tokens.");
  return body;
}

function whole(name, text) {
  const digits = text.replace(/[\s_,]/g, "");
  if (!digits) return null;
  if (!/^\d{1,15}$/.test(digits)) throw new Error(`${name} is ${text}: expected a whole number, such as 2,000,000.`);
  return Number(digits);
}

/** "12.50" -> 12500000, without the rounding of floating point. */
function micros(name, text) {
  const amount = text.replace(/[\s_]/g, "");
  if (!amount) return null;
  const [, whole, part = ""] = /^(\d{1,9})(?:\.(\d{1,6}))?$/.exec(amount) ?? [];
  if (whole === undefined) throw new Error(`${name} is ${text}: expected an amount such as 12.50, with at most 6 digits after the point.`);
  return Number(whole) * 1_000_000 + Number(part.padEnd(6, "0"));
}

/** The texts of a form that change a limit. @param {any} limit */
export const formOf = (limit) => ({
  scope: limit?.scope ?? "tenant",
  tenant: limit?.tenant_id ?? "",
  user: limit?.scope_id ?? "",
  softTokens: textOf(limit?.soft_limit),
  hardTokens: textOf(limit?.hard_limit),
  softMoney: textOf(limit?.soft_limit_micros, 1e6),
  hardMoney: textOf(limit?.hard_limit_micros, 1e6),
  strict: limit?.strict ?? false,
});

const textOf = (amount, unit = 1) => (amount === null || amount === undefined ? "" : String(amount / unit));
