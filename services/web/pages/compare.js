// Two runs side by side: where they part, and how their definitions, outcomes and usage differ.
import { html, useEffect, useRef, useState } from "../ui.js";
import { runs, seg } from "../api.js";
import { Button, Chip, CopyButton, Field, Id } from "../components/controls.js";
import { Difference } from "../components/difference.js";
import { LongText, safeText } from "../components/json.js";
import { useKeys } from "../components/keys.js";
import { Resource } from "../components/states.js";
import { RunStatus } from "../components/status.js";
import { PlainTable } from "../components/table.js";
import { formatCount, formatMoney, formatShort } from "../components/time.js";
import { usePageTitle } from "../frame.js";
import { useResource } from "../resource.js";
import { here, link, navigate, setQuery } from "../router.js";

const STEPS_MAX = 200;
const OUTCOMES = { status: "Status", reason: "Reason", turns: "Turns", input_tokens: "Input tokens", output_tokens: "Output tokens", cost_micros: "Cost", model_errors: "Failed model calls" };
/** Names of fields as people say them. @param {string[]} names */
const inWords = (names) => names.map((name) => (name === "cost_micros" ? "cost" : name.replaceAll("_", " "))).join(", ");
const WHO = { user: "User", agent: "Agent", tools: "Tool results" };

/** @param {{params: {run: string, other: string}}} properties */
export default function Compare({ params }) {
  const query = here.value.query;
  const at = Number(query.get("at")) || undefined;
  const withAt = Number(query.get("with_at")) || undefined;
  const result = useResource(() => runs.diff(params.run, params.other, { at, with_at: withAt }), [params.run, params.other, at ?? 0, withAt ?? 0]);
  usePageTitle("Compare runs");
  const turned = link(`/runs/${seg(params.other)}/compare/${seg(params.run)}`, { at: withAt, with_at: at }).slice("/ui".length);
  const command = `loomlog runs diff ${params.run} ${params.other}${at ? ` --at ${at}` : ""}${withAt ? ` --with-at ${withAt}` : ""}`;
  return html`<div class="page compare">
    <header><h1>Compare runs</h1><span class="grow"></span>
      <span class="actions"><${CopyButton} text=${command} label="Copy the loomlog command for this comparison"><span>loomlog</span><//>
      <${Button} small onClick=${() => navigate(turned)}>Swap sides<//><${Button} small icon="refresh-cw" isBusy=${result.isLoading} onClick=${result.reload}>Read again<//></span></header>
    <${Resource} of=${result}>${(data) => html`<${Compared} data=${data} at=${at} withAt=${withAt} key=${`${params.run} ${params.other}`} />`}<//>
  </div>`;
}

/** @param {{data: Api.RunComparison, at: any, withAt: any}} properties */
function Compared({ data, at, withAt }) {
  const [showsSame, setShowsSame] = useState(false);
  const first = useRef(/** @type {HTMLElement | null} */ (null));
  const jump = () => (first.current?.scrollIntoView({ block: "center" }), first.current?.focus());
  useKeys("Compare", { n: ["The first difference", jump] });
  const place = data.first?.place ?? -1;
  const steps = data.steps.filter((step) => showsSame || step.differs.length).slice(0, STEPS_MAX);
  const hidden = data.steps.filter((step) => !step.differs.length).length;
  const left = data.steps.filter((step) => showsSame || step.differs.length).length - steps.length;
  const definition = data.definition.filter((one) => one.name !== "sha256");
  return html`
    <div class="compare-sides"><${Side} side=${data.a} name="A" at=${at} queryName="at" other=${data.b} /><${Side} side=${data.b} name="B" at=${withAt} queryName="with_at" other=${data.a} /></div>
    ${data.same
      ? html`<p class="note good" role="status"><b>Equal.</b> The same definition, ${formatCount(data.steps.length)} equal steps, the same outcome.</p>`
      : html`<p class=${data.first ? "note warn" : "note"} role="status">${data.first
          ? html`<b>They part at step ${place + 1}</b> (${inWords(data.first.differs)}), after ${formatCount(data.shared_steps)} equal ${data.shared_steps === 1 ? "step" : "steps"}. <button class="link" type="button" onClick=${jump}>Jump to it</button>`
          : html`<b>Every step is equal</b>; they differ in ${[definition.length && "their definition", data.system.length && "the system prompt", data.outcome.length && "their outcome"].filter(Boolean).join(", ")}.`}</p>`}
    ${data.common ? html`<p class="dim">Turns, tokens and cost of both are counted from the event that they share: <a href=${link(`/runs/${seg(data.common.run_id)}/events`, { seq: data.common.seq })}>event ${data.common.seq} of ${data.common.run_id === data.a.run_id ? "A" : data.common.run_id === data.b.run_id ? "B" : "their origin"}</a>.</p>` : null}
    ${data.outcome.length
      ? html`<section class="card"><header><h2>Outcome and usage</h2></header><${PlainTable} label="Differences of the outcome" rows=${data.outcome} rowKey=${(row) => row.name} columns=${[
          { key: "name", title: "What", cell: (row) => OUTCOMES[row.name] ?? row.name },
          { key: "a", title: "A", align: "right", cell: (row) => valueOf(row.name, row.a, data.a) },
          { key: "b", title: "B", align: "right", cell: (row) => valueOf(row.name, row.b, data.b) },
          { key: "change", title: "Change", align: "right", cell: (row) => changeOf(row) },
        ]} /></section>`
      : null}
    ${definition.length ? html`<section class="card"><header><h2>Definition</h2><span class="count">${definition.length}</span></header><div class="inside compare-values">${definition.map((one) => html`<${ValueChange} key=${one.name} one=${one} />`)}</div></section>` : null}
    ${data.system.length ? html`<section class="card"><header><h2>System prompt as the model saw it</h2></header><div class="inside">${data.system.map((one) => html`<${Difference} key=${one.name} before=${textOf(one.a)} after=${textOf(one.b)} label="System prompt" />`)}</div></section>` : null}
    <section aria-label="Steps">
      <div class="bar"><h2>Steps</h2>${hidden ? html`<${Button} small kind="quiet" isPressed=${showsSame} onClick=${() => setShowsSame(!showsSame)}>${showsSame ? "Hide equal steps" : `Show ${formatCount(hidden)} equal ${hidden === 1 ? "step" : "steps"}`}<//>` : null}</div>
      ${!data.steps.length ? html`<p class="dim">Neither run has said anything yet.</p>` : null}
      <ol class="compare-steps">
        ${steps.map((step) => html`<li key=${step.place} class=${step.place === place ? "first" : step.differs.length ? "differs" : ""} ref=${step.place === place ? first : undefined} tabindex=${step.place === place ? -1 : undefined}>
          <p class="compare-place"><b>Step ${step.place + 1}</b> ${step.differs.length ? html`<span class=${step.place === place ? "warn" : "dim"}>${step.place === place ? "the first difference: " : ""}${inWords(step.differs)}</span>` : html`<span class="dim">equal</span>`}</p>
          <div class="compare-pair"><${Step} step=${step.a} side=${data.a} differs=${step.differs} /><${Step} step=${step.b} side=${data.b} differs=${step.differs} /></div>
          ${step.a && step.b && (step.differs.includes("text") || step.differs.includes("calls")) ? html`<${TextChange} a=${step.a} b=${step.b} isOpen=${step.place === place} />` : null}
        </li>`)}
      </ol>
      ${left > 0 ? html`<p class="note">${formatCount(left)} more steps; the command line shows them all.</p>` : null}
    </section>`;
}

/** One of the two runs, and the moment at which it is looked at. @param {{side: Api.ComparedRun, name: any, at: any, queryName: any, other: any}} properties */
function Side({ side, name, at, queryName, other }) {
  const [text, setText] = useState(at ? String(at) : "");
  const apply = (event) => {
    event?.preventDefault();
    if (text === "" || /^[1-9]\d{0,8}$/.test(text)) setQuery({ [queryName]: text });
  };
  useEffect(() => setText(at ? String(at) : ""), [at]);
  const run = `/runs/${seg(side.run_id)}`;
  const fork = side.forked_from?.run_id === other.run_id ? side.forked_from : null;
  return html`<section class="card compare-side" aria-label=${`Run ${name}`}>
    <header><h2>${name} <bdi>${side.agent ?? "refused"}</bdi></h2><${RunStatus} run=${side} /></header>
    <div class="inside">
      <p><${Id} id=${side.run_id} short=${12} href=${link(run)} /> ${fork ? html`<${Chip} icon="git-fork" title="It shares that run's events up to there">fork of the other at ${fork.seq}<//>` : null}</p>
      <p class="dim number">${formatCount(side.turns)} turns, ${formatShort(side.input_tokens)} in, ${formatShort(side.output_tokens)} out, ${formatMoney(side.cost_micros, side.currency)}</p>
      <form class="bar" onSubmit=${apply}><${Field} inline label="As it was at seq" value=${text} onInput=${setText} type="number" min="1" placeholder=${String(side.at)} /><${Button} small type="submit">Apply<//>
        <a href=${link(`${run}/events`)}>Events</a> <a href=${link(`${run}/timeline`)}>Timeline</a></form>
    </div>
  </section>`;
}

/** @param {{step: Api.ComparedStep | null, side: any, differs: any}} properties */
function Step({ step, side, differs }) {
  if (!step) return html`<div class="compare-step none"><p class="dim">No such step.</p></div>`;
  const isOther = (name) => (differs.includes(name) ? "other" : "");
  return html`<div class="compare-step">
    <header><b>${WHO[step.who] ?? step.who}</b>${step.turn ? html` <span class="dim">turn ${step.turn}</span>` : null}
      ${step.model ? html`<span class=${`dim ${isOther("model")}`}>${step.model}</span>` : null}
      ${step.seq ? html`<span class="dim number"><span class=${isOther("input_tokens")}>${formatShort(step.input_tokens)} in</span>, <span class=${isOther("output_tokens")}>${formatShort(step.output_tokens)} out</span></span>` : null}
      <span class="grow"></span>${step.seq ? html`<a href=${link(`/runs/${seg(side.run_id)}/events`, { seq: step.seq })}>record ${step.seq}</a>` : null}</header>
    ${step.text ? html`<div class="text"><${LongText} text=${step.text} max=${600} /></div>` : null}
    ${step.calls.map((call, number) => html`<div class=${`message-call${call.is_error ? " error" : ""}`} key=${number}><b><bdi>${call.name}</bdi></b> <span class="mono"><${LongText} text=${call.text} max=${300} /></span></div>`)}
  </div>`;
}

const stepText = (step) => [step.text, ...step.calls.map((call) => `${call.name}${call.is_error ? " (error)" : ""} ${call.text}`)].filter(Boolean).join("\n");

/** @param {{a: Api.ComparedStep | null, b: Api.ComparedStep | null, isOpen: any}} properties */
function TextChange({ a, b, isOpen }) {
  const [open, setOpen] = useState(isOpen);
  return html`<details open=${open} onToggle=${(event) => setOpen(event.currentTarget.open)}><summary>Line by line</summary>${open ? html`<${Difference} before=${stepText(a)} after=${stepText(b)} label="Line by line" />` : null}</details>`;
}

const textOf = (value) => (typeof value === "string" ? value : Array.isArray(value) && value.every((one) => typeof one === "string") ? value.join("\n\n") : safeText(value));

/** @param {{one: Api.ValueDifference}} properties */
function ValueChange({ one }) {
  const a = textOf(one.a ?? "");
  const b = textOf(one.b ?? "");
  const name = html`<h3>${one.name.replaceAll("_", " ")}</h3>`;
  if (a.includes("\n") || b.includes("\n") || a.length + b.length > 160) return html`<div>${name}<${Difference} before=${a} after=${b} label=${one.name} /></div>`;
  return html`<div class="compare-value">${name}<code class="bad"><bdi>${a || "none"}</bdi></code><span aria-hidden="true">→</span><span class="spoken">in B</span><code class="good"><bdi>${b || "none"}</bdi></code></div>`;
}

function valueOf(name, value, side) {
  if (name === "cost_micros") return formatMoney(value, side.currency);
  return typeof value === "number" ? formatCount(value) : value || html`<span class="dim">none</span>`;
}

function changeOf({ name, a, b }) {
  if (typeof a !== "number" || typeof b !== "number") return "";
  const by = b - a;
  const share = a ? ` (${by > 0 ? "+" : "−"}${Math.round(Math.abs(by / a) * 100)} %)` : "";
  return `${by > 0 ? "+" : "−"}${name === "cost_micros" ? formatMoney(Math.abs(by)) : formatCount(Math.abs(by))}${share}`;
}
