// The fields of an agent that most people set; every other key is kept as it is and edited as text.
import { html, useState } from "../../ui.js";
import { agents } from "../../api.js";
import { Field } from "../../components/controls.js";
import { useResource } from "../../resource.js";

const TIERS = [{ value: "", title: "choose" }, "low", "middle", "high"];
const EFFORTS = [{ value: "", title: "default of the model" }, "low", "medium", "high"];

/** Sets a key, or takes it out when it is empty. @param {Record<string, any>} value @param {Record<string, any>} changes */
function changed(value, changes) {
  const next = { ...value };
  for (const [key, one] of Object.entries(changes)) {
    if (one === "" || one === null || one === undefined || (Array.isArray(one) && !one.length)) delete next[key];
    else next[key] = one;
  }
  return next;
}

const names = (text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))];
const whole = (text) => (text === "" ? null : Number.parseInt(text, 10) || 0);

/** @param {{value: Record<string, any>, onChange: (value: Record<string, any>) => void, tenant: string}} properties */
export function AgentForm({ value, onChange }) {
  const [byTier, setByTier] = useState(Boolean(value.tier));
  const set = (changes) => onChange(changed(value, changes));
  // Models that the agents of this installation have: a start for typing.
  const known = useResource(() => agents.runnable().catch(() => ({ agents: [] })), []);
  const models = [...new Set((known.data?.agents ?? []).flatMap((one) => one.model || []))];
  const choose = (how) => {
    setByTier(how === "tier");
    set(how === "tier" ? { provider: "", model: "" } : { tier: "" });
  };
  const others = Object.keys(value).filter((key) => !SHOWN.has(key));
  return html`<div class="fields">
    <${Field} label="Description" value=${value.description ?? ""} onInput=${(text) => set({ description: text })} hint="What it is for; other agents read it when they choose whom to start." />
    <div class="fields two">
      <${Field} label="Model by" value=${byTier ? "tier" : "model"} onInput=${choose} options=${[{ value: "tier", title: "tier: the routing chooses" }, { value: "model", title: "provider and model" }]} />
      ${byTier
        ? html`<${Field} label="Tier" value=${value.tier ?? ""} onInput=${(text) => set({ tier: text })} options=${TIERS} />`
        : html`<${Field} label="Provider" value=${value.provider ?? ""} onInput=${(text) => set({ provider: text.trim() })} placeholder="anthropic" />
            <${Field} label="Model" value=${value.model ?? ""} onInput=${(text) => set({ model: text.trim() })} list=${models} hint="Name of a model, or an alias of the configuration." />`}
      <${Field} label="Effort" value=${value.effort ?? ""} onInput=${(text) => set({ effort: text })} options=${EFFORTS} />
    </div>
    <${Field} label="System prompt" value=${value.system_prompt ?? ""} onInput=${(text) => set({ system_prompt: text })} rows=${12} code />
    <${Names} label="Tools" value=${value.tools ?? []} onChange=${(list) => set({ tools: list })} hint="Names, with spaces or commas between them; a * at the end takes all that begin so. mcp__<server>__<tool> for tools of MCP servers." />
    <${Names} label="Skills" value=${value.skills ?? []} onChange=${(list) => set({ skills: list })} hint="Names of skills; a * at the end takes all that begin so." />
    <div class="fields two">
      <${Field} label="Model calls at most" type="number" min="0" value=${value.max_iterations ?? ""} onInput=${(text) => set({ max_iterations: whole(text) })} hint="Empty: the default." />
      <${Field} label="Tokens of an answer at most" type="number" min="0" value=${value.max_tokens ?? ""} onInput=${(text) => set({ max_tokens: whole(text) })} hint="Empty: the default." />
      <${Field} label="Seconds of a run at most" type="number" min="0" value=${value.run_timeout_seconds ?? ""} onInput=${(text) => set({ run_timeout_seconds: whole(text) })} hint="Empty: the default." />
    </div>
    ${others.length ? html`<p class="hint">Kept as they are, and edited as YAML: ${others.map((key, at) => html`${at ? ", " : ""}<code key=${key}>${key}</code>`)}.</p>` : null}
  </div>`;
}

const SHOWN = new Set(["description", "tier", "provider", "model", "effort", "system_prompt", "tools", "skills", "max_iterations", "max_tokens", "run_timeout_seconds"]);

/** A list of names as one text; what is typed stays as it is typed. */
function Names({ label, value, onChange, hint }) {
  const [text, setText] = useState(value.join(" "));
  const shown = names(text).join(" ") === value.join(" ") ? text : value.join(" ");
  return html`<${Field} label=${label} value=${shown} onInput=${(next) => (setText(next), onChange(names(next)))} code hint=${hint} />`;
}
