// What the pages of schedules say, without a document.

/** What happens at a time at which a run of the schedule still works. @type {Record<string, string>} */
export const OVERLAP = {
  skip: "While a run of it works, a time passes without another one.",
  queue_one: "While a run of it works, one time waits; it fires when the run has ended.",
  cancel: "A run of it that still works is cancelled, and the new one starts.",
  allow: "Runs of it may work beside each other.",
};

/** What happens with times that passed while no runtime was there. @param {number} most catch_up_max */
export function catchUpWords(most) {
  if (most === 0) return "Times that passed while no runtime was there are left out.";
  if (most === 1) return "Times that passed while no runtime was there become one run.";
  return `Of the times that passed while no runtime was there, the latest ${most} fire in their order.`;
}

/** A pause without an end is told as one of a hundred years. @param {string | undefined} until */
export const isForever = (until) => Boolean(until) && new Date(String(until)).getTime() > Date.now() + 50 * 365 * 86_400_000;

/**
 * How a schedule is: [key, tone, word, why].
 * @param {any} entry of the list @param {number} nowMs @returns {[string, string, string, string]}
 */
export function stateOf(entry, nowMs) {
  const { state } = entry;
  if (!entry.active_def_id) return ["idle", "", "not active", "No version of it is active: make one active in the library"];
  if (!state) return ["idle", "warn", "not armed", "The runtime has not taken it yet, or its definition is not one"];
  if (state.problem) return ["problem", "bad", "cannot run", state.problem];
  if (state.paused_until && new Date(state.paused_until).getTime() > nowMs) return ["paused", "warn", "paused", isForever(state.paused_until) ? "until it is resumed" : `until ${state.paused_until}`];
  if (state.is_enabled === false) return ["off", "", "off", "Its definition says enabled: false, or schedules are off for the installation; run-now works"];
  if (state.max_fires && state.fires >= state.max_fires) return ["done", "", "finished", `It has fired ${state.max_fires} times, as often as it may`];
  if (state.times === "") return ["template", "", "template", "It has no times of its own: fork it for a user with a tier"];
  if (state.running.length) return ["active", "live", "runs now", `${state.running.length} of its runs work`];
  return ["active", "good", "active", "It fires at its times"];
}

/** @type {Record<string, [string, string]>} status of a fire -> tone, word */
const FIRES = {
  running: ["live", "running"],
  completed: ["good", "completed"],
  failed: ["bad", "failed"],
  cancelled: ["", "cancelled"],
  skipped: ["warn", "skipped"],
};

/** A fire, or times that passed, as the list says it. @param {any} fire @returns {{key: string, tone: string, word: string, why: string}} */
export function fireOf(fire) {
  const [tone, word] = FIRES[fire.status] ?? ["", fire.status];
  if (fire.count) {
    const some = `${fire.is_at_least ? "at least " : ""}${fire.count} ${fire.count === 1 ? "time" : "times"}`;
    return { key: `s/${fire.instant}`, tone, word: `${some} passed`, why: REASONS[fire.reason] ?? fire.reason ?? "" };
  }
  return { key: `${fire.run_id ?? ""}/${fire.fired_at ?? fire.instant}`, tone, word, why: fire.error ?? "" };
}

/** Why times passed without a run. @type {Record<string, string>} */
const REASONS = {
  overlap: "a run of it still worked",
  paused: "it was paused",
  catch_up: "no runtime was there, and its catch-up takes no more of them",
};

/** Rows with a newer first page in front; rows of both are taken from the page. @param {any[]} rows @param {any[]} page */
export function withFirstPage(rows, page) {
  const keys = new Set(page.map((one) => fireOf(one).key));
  return [...page, ...rows.filter((one) => !keys.has(fireOf(one).key))];
}

/** The schedules that fit the filters, those that fire next first. @param {any[]} entries @param {{text: string, state: string}} filters @param {number} nowMs */
export function listed(entries, { text, state }, nowMs) {
  const wanted = text.trim().toLowerCase();
  const next = (entry) => (entry.state?.next_run_at ? new Date(entry.state.next_run_at).getTime() : Infinity);
  return entries
    .filter((entry) => (!state || stateOf(entry, nowMs)[0] === state) && (!wanted || `${entry.name} ${entry.state?.agent ?? ""} ${entry.state?.times ?? ""} ${entry.tenant_id}`.toLowerCase().includes(wanted)))
    .sort((a, b) => (next(a) === next(b) ? a.name.localeCompare(b.name) : next(a) - next(b)));
}

/** The schedule that an address names: by the id of its active version, else by its name. @param {any[]} entries @param {string} id @param {string} tenant */
export function entryOf(entries, id, tenant) {
  return entries.find((entry) => entry.active_def_id === id) ?? entries.find((entry) => entry.name === id && (!tenant || entry.tenant_id === tenant)) ?? null;
}

/** The overlay of a new schedule. @param {any} form */
export function overlayOf(form) {
  return {
    agent: form.agent.trim(),
    schedule: form.times.trim(),
    ...(form.timezone.trim() && !form.times.trim().startsWith("@every") ? { timezone: form.timezone.trim() } : {}),
    ...(form.prompt.trim() ? { prompt: [{ role: "user", content: [{ type: "trusted-text", text: form.prompt }] }] } : {}),
    ...(form.user_id.trim() ? { user_id: form.user_id.trim() } : {}),
    ...(form.overlap === "skip" ? {} : { overlap: form.overlap }),
  };
}

/** The texts of a prompt. @param {any[]} prompt */
export const promptText = (prompt) => (prompt ?? []).map((segment) => segment.content.map((block) => block.text ?? "").join("\n")).join("\n\n");
