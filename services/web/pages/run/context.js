// What the model saw at a turn: system prompt, tools, messages, parameters and tokens; and what changed since the turn before.
import { html, useMemo, useState } from "../../ui.js";
import { runs } from "../../api.js";
import { Button, Chip, CopyButton, Tabs } from "../../components/controls.js";
import { Difference } from "../../components/difference.js";
import { Json, LongText } from "../../components/json.js";
import { useKeys } from "../../components/keys.js";
import { Markdown } from "../../components/markdown.js";
import { Empty, Resource } from "../../components/states.js";
import { formatBytes, formatCount, formatShort } from "../../components/time.js";
import { parseJson } from "../../exact_json.js";
import { useResource } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { asText, callAt, callBefore, callsOf, changesOf, parametersOf, sharesOf, systemText } from "./context_model.js";
import { viewLink } from "./links.js";

const MESSAGES_MAX = 60;
const SHARES = { system: ["System", "c4"], user: ["User", "c2"], assistant: ["Assistant", "c1"], calls: ["Tool calls", "c3"], results: ["Tool results", "c7"] };

/** @param {{history: import("./history.js").History}} properties */
export default function Context({ history }) {
  const query = here.value.query;
  const calls = useMemo(() => callsOf(history.shown), [history.shown]);
  const call = callAt(calls, Number(query.get("turn")) || 0, Number(query.get("attempt")) || 0) ?? callAt(calls, 0, 0);
  const before = call && callBefore(calls, call);
  const at = call ? calls.indexOf(call) : -1;
  const choose = (one) => one && setQuery({ turn: one.turn, attempt: calls.filter((other) => other.turn === one.turn).length > 1 ? one.attempt : null });
  useKeys("Context", { "[": ["The call before", () => choose(calls[at - 1])], "]": ["The next call", () => choose(calls[at + 1])] });
  if (!call) {
    return history.isComplete
      ? html`<${Empty} icon="layers" title="No model was called up to this moment">A context exists from the first call of the model on.<//>`
      : html`<div class="state quiet" aria-busy="true"></div>`;
  }
  const view = query.get("view") === "changes" && before ? "changes" : query.get("view") === "text" && before ? "text" : "whole";
  return html`<div class="context">
    <div class="bar">
      <${Button} small icon="chevron-left" label="The call before" title="The call before ([)" isDisabled=${at <= 0} onClick=${() => choose(calls[at - 1])} />
      <select class="context-turn" aria-label="Turn" value=${String(at)} onChange=${(event) => choose(calls[Number(event.currentTarget.value)])}>
        ${calls.map((one, number) => html`<option value=${String(number)} key=${one.seq} selected=${number === at}>Turn ${one.turn}${calls[number - 1]?.turn === one.turn || calls[number + 1]?.turn === one.turn ? `, attempt ${one.attempt}` : ""}</option>`)}
      </select>
      <${Button} small icon="chevron-right" label="The next call" title="The next call (])" isDisabled=${at >= calls.length - 1} onClick=${() => choose(calls[at + 1])} />
      <span class="context-model"><b>${call.model}</b> <span class="dim">${call.provider}</span></span>
      ${call.usage ? html`<span class="dim number" title=${`${formatCount(call.usage.input_tokens)} input, ${formatCount(call.usage.cache_read_input_tokens)} from the cache, ${formatCount(call.usage.cache_creation_input_tokens)} written to it, ${formatCount(call.usage.output_tokens)} output`}>${formatShort(call.usage.input_tokens + call.usage.cache_read_input_tokens + call.usage.cache_creation_input_tokens)} tokens in, ${formatShort(call.usage.output_tokens)} out${call.stopReason ? `, ${call.stopReason}` : ""}</span>` : call.isFailed ? html`<${Chip} tone="bad">the call failed<//>` : html`<${Chip} tone="live">under way<//>`}
      <span class="grow"></span>
      <a class="dim" href=${viewLink(history.runId, "events", { seq: call.seq })}>record ${call.seq}</a>
    </div>
    <${Tabs} label="How the context is shown" selected=${view} onSelect=${(key) => setQuery({ view: key === "whole" ? null : key })}
      tabs=${[{ key: "whole", title: "All of it" }, ...(before ? [{ key: "changes", title: `Changes since turn ${before.turn}` }, { key: "text", title: "Changes as text" }] : [])]} />
    ${call.switched ? html`<p class="note warn">The run went from ${call.switched.failed_model} to ${call.switched.model}: <bdi>${call.switched.cause || call.switched.reason}</bdi>${call.switched.reasoning_cleared ? ` Reasoning was taken out of ${call.switched.reasoning_cleared} answers.` : ""}</p>` : null}
    ${call.compactions.map((one) => html`<${Compaction} of=${one} runId=${history.runId} key=${one.seq} />`)}
    <${Seen} runId=${history.runId} call=${call} before=${view === "whole" ? null : before} view=${view} />
  </div>`;
}

function Compaction({ of, runId }) {
  return html`<details class="note compaction">
    <summary><b>A compaction came before this call</b> (${of.trigger}): from ${formatCount(of.before_tokens)} to ${formatCount(of.after_tokens)} tokens, the last ${of.keep_n} messages${of.keep_first ? " and the first" : ""} were kept.</summary>
    <p class="dim">Summary that took the place of the rest (by ${of.model}, <a href=${viewLink(runId, "events", { seq: of.seq })}>record ${of.seq}</a>):</p><${LongText} text=${of.summary} max=${4_000} />
  </details>`;
}

function Seen({ runId, call, before, view }) {
  const state = useResource((signal) => Promise.all([runs.state(runId, call.seq, { signal }), before ? runs.state(runId, before.seq, { signal }) : null]), [runId, call.seq, before?.seq ?? 0]);
  return html`<${Resource} of=${state}>${([now, then]) => html`
    <${Shares} state=${now} />
    ${view === "text" && then
      ? html`<${Difference} before=${asText(then, before)} after=${asText(now, call)} label=${`Context of turn ${before.turn} and of turn ${call.turn}`} />`
      : html`<div class="context-split">
          <div class="context-main"><${System} now=${now} then=${then} /><${Messages} now=${now} then=${then} key=${`${call.seq}.${view}`} /></div>
          <${Aside} now=${now} then=${then} call=${call} before=${before} />
        </div>`}
  `}<//>`;
}

/** How much each part takes up. @param {{state: Api.RunStateAt}} properties */
function Shares({ state }) {
  const shares = sharesOf(state);
  const all = Math.max(1, Object.values(shares).reduce((sum, one) => sum + one, 0));
  const shown = Object.entries(shares).filter(([, length]) => length > 0);
  return html`<div class="path-summary"><div class="path-bar" aria-hidden="true">${shown.map(([part, length]) => html`<i key=${part} style=${{ width: `${(length / all) * 100}%`, background: `var(--${SHARES[part][1]})` }}></i>`)}</div>
    <ul>${shown.map(([part, length]) => html`<li key=${part}><i style=${{ background: `var(--${SHARES[part][1]})` }}></i>${SHARES[part][0]} <b class="number">${Math.round((length / all) * 100)} %</b></li>`)}<li class="dim">${formatCount(state.messages.length)} messages, ${formatShort(all)} characters</li></ul></div>`;
}

/** @param {{now: Api.RunStateAt, then: Api.RunStateAt | null}} properties */
function System({ now, then }) {
  const text = (state) => (state?.system ?? []).map(systemText).join("\n\n");
  const isOther = then && text(now) !== text(then);
  return html`<section class="card"><header><h2>System prompt</h2>${then ? html`<${Chip} tone=${isOther ? "warn" : ""}>${isOther ? "changed" : "unchanged"}<//>` : null}<${CopyButton} text=${text(now)} label="Copy the system prompt" /></header>
    ${then && !isOther ? null : html`<div class="inside">${isOther ? html`<${Difference} before=${text(then)} after=${text(now)} label="System prompt" />` : text(now) ? html`<div class="text"><${LongText} text=${text(now)} max=${3_000} /></div>` : html`<p class="dim">None.</p>`}</div>`}
  </section>`;
}

/** @param {{now: Api.RunStateAt, then: Api.RunStateAt | null}} properties */
function Messages({ now, then }) {
  const [most, setMost] = useState(MESSAGES_MAX);
  const rows = useMemo(() => (then ? changesOf(then.messages, now.messages).filter((row) => row.kind !== "same") : now.messages.map((message, at) => ({ kind: "same", message, at }))), [now, then]);
  const shown = rows.slice(-most);
  const same = then ? now.messages.length - rows.filter((row) => row.kind === "added").length : 0;
  if (!rows.length) return html`<p class="dim">${then ? `The same ${now.messages.length} messages.` : "No messages."}</p>`;
  return html`<section aria-label="Messages">
    <div class="bar"><h2>Messages</h2>${then ? html`<span class="dim">${rows.filter((row) => row.kind === "added").length} added, ${rows.filter((row) => row.kind === "removed").length} removed, ${same} the same</span>` : null}</div>
    ${rows.length > most ? html`<p><button class="link" type="button" onClick=${() => setMost(most + 300)}>${formatCount(rows.length - most)} earlier messages</button></p>` : null}
    <ol class="messages">${shown.map((row) => html`<${Message} key=${`${row.kind}.${row.at}`} row=${row} isInherited=${row.kind !== "removed" && row.at < (now.inherited_messages ?? 0)} />`)}</ol>
  </section>`;
}

const SIGNS = { added: ["added", "good"], removed: ["removed", "bad"] };

function Message({ row, isInherited }) {
  const { message, kind, at } = row;
  const sign = SIGNS[kind];
  return html`<li class=${`message ${kind} ${message.role}`}>
    <header><b>${message.role === "user" ? (message.content.every((block) => block.type === "tool_result") ? "Tool results" : "User") : "Assistant"}</b> <span class="dim number">${at + 1}</span>
      ${sign ? html`<${Chip} tone=${sign[1]}>${sign[0]}<//>` : null}${isInherited ? html`<${Chip} title="From an earlier run of the session, from the run it was forked from, or from a compaction">carried over<//>` : null}</header>
    ${message.reasoning ? html`<details><summary class="dim">Thinking</summary><${LongText} text=${message.reasoning} max=${2_000} /></details>` : null}
    ${message.content.map((block, place) => html`<${Block} block=${block} role=${message.role} key=${place} />`)}
  </li>`;
}

function Block({ block, role }) {
  if (block.type === "tool_use") return html`<div class="message-call"><b><bdi>${block.name}</bdi></b> <code class="dim"><bdi>${block.id}</bdi></code><${Json} value=${parsed(block.input)} open=${1} label=${`Arguments of ${block.name}`} /></div>`;
  if (block.type === "tool_result") return html`<div class=${`message-call${block.is_error ? " error" : ""}`}><b><bdi>${block.name}</bdi></b> ${block.is_error ? html`<${Chip} tone="bad">error<//>` : null} <code class="dim"><bdi>${block.tool_use_id}</bdi></code><div class="mono"><${LongText} text=${block.text ?? ""} max=${1_200} /></div><${Blob} of=${block.blob} /></div>`;
  if (block.type === "image") return html`<p class="dim">Image, ${block.media_type} <${Blob} of=${block.blob} /></p>`;
  return html`${role === "assistant" ? html`<${Markdown} text=${block.text ?? ""} />` : html`<div class="text"><${LongText} text=${block.text ?? ""} max=${2_000} /></div>`}<${Blob} of=${block.blob} />`;
}

const Blob = ({ of }) => (of ? html`<span class="dim">${formatBytes(of.size_bytes)} in the blob store, <code>${of.sha256.slice(0, 12)}…</code></span>` : null);

function parsed(input) {
  try {
    return parseJson(input);
  } catch {
    return input;
  }
}

/** @param {{now: Api.RunStateAt, then: Api.RunStateAt | null, call: any, before: any}} properties */
function Aside({ now, then, call, before }) {
  const tools = now.definition?.tools ?? [];
  const earlier = then ? new Set(then.definition?.tools ?? []) : null;
  const gone = then ? (then.definition?.tools ?? []).filter((tool) => !tools.includes(tool)) : [];
  return html`<aside class="context-aside">
    <section class="card"><header><h2>Tools</h2><span class="count">${tools.length}</span></header><div class="inside">
      ${tools.length ? html`<p class="chips">${tools.map((tool) => html`<${Chip} key=${tool} tone=${earlier && !earlier.has(tool) ? "good" : ""}>${tool}<//>`)}${gone.map((tool) => html`<${Chip} key=${tool} tone="bad" title="no longer granted">${tool}<//>`)}</p>` : html`<p class="dim">None were granted.</p>`}
      <p class="hint">Names and patterns of the pinned definition; the texts that describe them come from the installed tools.</p>
    </div></section>
    <section class="card"><header><h2>Model and parameters</h2></header><div class="inside"><dl class="facts">
      <dt>Model</dt><dd>${call.model}${before && before.model !== call.model ? html` <span class="dim">before: ${before.model}</span>` : null}</dd><dt>Provider</dt><dd>${call.provider}</dd>
      ${parametersOf(now.definition).map((one) => html`<dt key=${one.name}>${one.name}</dt><dd key=${`${one.name}.`} class="number">${one.value}</dd>`)}
      ${call.usage ? html`<dt>Input</dt><dd class="number">${formatCount(call.usage.input_tokens)}</dd><dt>From cache</dt><dd class="number">${formatCount(call.usage.cache_read_input_tokens)}</dd><dt>Into cache</dt><dd class="number">${formatCount(call.usage.cache_creation_input_tokens)}</dd><dt>Output</dt><dd class="number">${formatCount(call.usage.output_tokens)}</dd>` : null}
      ${call.maxContext ? html`<dt>Window</dt><dd class="number">${formatCount(call.maxContext)}</dd>` : null}
    </dl></div></section>
  </aside>`;
}
