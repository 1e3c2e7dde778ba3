// The content of a version: texts as text, short values as facts, the rest as JSON.
import { html } from "../../ui.js";
import { Chip, CopyButton } from "../../components/controls.js";
import { Graph } from "../../components/graph.js";
import { Json } from "../../components/json.js";
import { Code } from "../../components/markdown.js";
import { PlainTable } from "../../components/table.js";
import { formatBytes } from "../../components/time.js";
import { link } from "../../router.js";
import { definitionPath } from "./kinds.js";
import { teamNodes } from "./team.js";
import { editable } from "./text.js";

const LONG = 160;
const GROUPS = {
  agent: [
    ["Model", ["provider", "model", "tier", "effort", "providers", "models", "sampling", "max_tokens", "retry_attempts"]],
    ["Tools", ["tools", "skills", "volumes", "channels", "search_providers", "disable_context", "inject_tool_guide"]],
    ["Limits", ["max_iterations", "unbounded_iterations", "run_timeout_seconds", "max_concurrent_children", "unknown_outcome", "interruption", "compaction"]],
    ["Memory", ["memory_scopes", "memory_backend", "memory_quota_bytes", "sql_scopes", "sql_quota_bytes", "core_blocks", "inherit_core_blocks", "memory_inject_max_tokens", "memory_protocol", "memory_consolidation", "memory_index_max_bytes", "memory_roots"]],
  ],
};
const LINKED = { skills: "skill", agent: "agent", memory_backend: "memorybackend" };

/** @param {{kind: import("./kinds.js").Kind, definition: Record<string, any>, tenant: string}} properties */
export function Content({ kind, definition: whole, tenant }) {
  const definition = editable(whole);
  const entries = Object.entries(definition);
  if (!entries.length) return html`<p class="dim">Nothing is set: everything has its default.</p>`;
  if (kind.kind === "team") return html`<${Team} definition=${definition} tenant=${tenant} />`;
  const isText = ([key, value]) => typeof value === "string" && (key in (kind.texts ?? {}) || value.length > LONG || value.includes("\n"));
  const texts = entries.filter(isText);
  const rest = entries.filter((entry) => !isText(entry) && entry[0] !== "files");
  const grouped = new Set();
  const groups = (GROUPS[kind.kind] ?? []).map(([title, keys]) => {
    const own = rest.filter(([key]) => keys.includes(key));
    own.forEach(([key]) => grouped.add(key));
    return [title, own];
  });
  groups.unshift([GROUPS[kind.kind] ? "About" : "", rest.filter(([key]) => !grouped.has(key))]);
  return html`<div class="contents">
    <div class="groups">
      ${groups
        .filter(([, own]) => own.length)
        .map(([title, own]) => html`<section key=${title}>${title ? html`<h3>${title}</h3>` : null}<dl class="facts">${own.map(([key, value]) => html`<dt key=${key}>${words(key)}</dt><dd><${Value} name=${key} value=${value} tenant=${tenant} /></dd>`)}</dl></section>`)}
    </div>
    ${texts.map(([key, text]) => html`<${Text} key=${key} title=${words(key)} text=${text} language=${kind.texts?.[key] ?? ""} />`)}
    ${definition.files ? Object.entries(definition.files).map(([path, text]) => html`<${Text} key=${path} title=${path} text=${String(text)} language=${path.split(".").pop() ?? ""} />`) : null}
  </div>`;
}

/** "max_tokens" -> "max tokens". @param {string} key */
export const words = (key) => key.replaceAll("_", " ");

function lines(text) {
  const count = text.split("\n").length;
  return count === 1 ? "1 line" : `${count.toLocaleString()} lines`;
}

/** A long text under its name. @param {{title: string, text: string, language?: string}} properties */
export function Text({ title, text, language = "" }) {
  return html`<section class="long-text">
    <div class="bar"><h3><bdi>${title}</bdi></h3><small class="dim">${lines(text)}, ${formatBytes(new TextEncoder().encode(text).length)}</small><span class="grow"></span><${CopyButton} text=${text} label=${`Copy ${title}`} /></div>
    <${Code} text=${text} language=${language} />
  </section>`;
}

function Value({ name, value, tenant }) {
  const linked = LINKED[name];
  const one = (text) => (linked && !/[*${]/.test(text) ? html`<a href=${link(definitionPath(linked, text), { tenant })}><bdi>${text}</bdi></a>` : html`<bdi>${text}</bdi>`);
  if (Array.isArray(value) && value.every((item) => typeof item === "string")) {
    if (!value.length) return html`<span class="dim">none</span>`;
    return html`<span class="chips">${value.map((item, at) => html`<${Chip} key=${at} title=${item}>${one(item)}<//>`)}</span>`;
  }
  if (typeof value === "string") return one(value);
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return html`<span class="number">${value.toLocaleString()}</span>`;
  if (value && !Array.isArray(value) && Object.values(value).every(isPlain)) {
    return html`<dl class="facts inner">${Object.entries(value).map(([key, inner]) => html`<dt key=${key}><bdi>${words(key)}</bdi></dt><dd><${Value} name="" value=${inner} tenant=${tenant} /></dd>`)}</dl>`;
  }
  return html`<${Json} value=${value} open=${2} label=${words(name)} />`;
}

const isPlain = (value) => (value !== null && typeof value !== "object") || (Array.isArray(value) && value.every((one) => typeof one === "string"));

function Team({ definition, tenant }) {
  const agent = (name) => (name ? html`<a href=${link(definitionPath("agent", name), { tenant })}><bdi>${name}</bdi></a>` : null);
  const { states = [], transitions = [], entry, max_iterations: iterations, ...rest } = definition;
  return html`<div class="contents">
    <${Graph} nodes=${teamNodes(definition)} current=${entry} label="States and the ways between them" />
    <dl class="facts"><dt>begins with</dt><dd><bdi>${entry}</bdi></dd><dt>entries of a state at most</dt><dd class="number">${iterations || 10}</dd></dl>
    <section><h3>States</h3><${PlainTable}
      label="States" rows=${states} rowKey=${(row) => row.state}
      columns=${[
        { key: "state", title: "State", cell: (row) => html`<bdi>${row.state}</bdi>${row.state === entry ? html` <${Chip} tone="info">first<//>` : null}` },
        { key: "kind", title: "Handled by", cell: (row) => row.handler?.kind ?? "" },
        { key: "agents", title: "Agents", cell: (row) => html`<span class="chips">${[row.handler?.agent, ...(row.handler?.agents ?? [])].filter(Boolean).map((name) => html`<${Chip} key=${name}>${agent(name)}<//>`)}</span>` },
        { key: "wait", title: "Waits for", cell: (row) => row.handler?.wait || html`<span class="dim">–</span>` },
        { key: "then", title: "Put together by", cell: (row) => agent(row.handler?.consolidator) ?? html`<span class="dim">–</span>` },
      ]}
    /></section>
    <section><h3>Transitions</h3><${PlainTable}
      label="Transitions" rows=${transitions ?? []} empty=${html`<p class="dim">None.</p>`}
      columns=${[
        { key: "from", title: "From", cell: (row) => html`<bdi>${row.from}</bdi>` },
        { key: "on", title: "On", cell: (row) => html`<bdi>${row.on}</bdi>` },
        { key: "to", title: "To", cell: (row) => html`<bdi>${row.to}</bdi>` },
      ]}
    /></section>
    ${Object.keys(rest).length ? html`<section><h3>More</h3><${Json} value=${rest} /></section>` : null}
  </div>`;
}
