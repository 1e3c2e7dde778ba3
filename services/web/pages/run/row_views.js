// How each kind of row of a conversation looks. Text of models and tools goes through Markdown, Json and LongText only.
import { createContext, html, useContext, useMemo, useState } from "../../ui.js";
import { Chip, Id } from "../../components/controls.js";
import { Difference } from "../../components/difference.js";
import { Icon } from "../../components/icon.js";
import { Json, LongText } from "../../components/json.js";
import { Markdown } from "../../components/markdown.js";
import { formatCount, formatDuration, formatMoment, formatMoney, toMs } from "../../components/time.js";
import { parseJson } from "../../exact_json.js";
import { isCutOff } from "../../outcome.js";
import { link } from "../../router.js";
import { recordPath } from "./history.js";
import { OutcomeCard, QuestionCard } from "./question.js";
import { previewOf, settledLength } from "./rows.js";

/** What all rows share: the run, which of them somebody opened or closed, whether they are of now. */
export const RowContext = createContext(/** @type {{runId: string, opened: Map<string, boolean>, isNow: boolean, isLive: boolean, reload: () => void}} */ (/** @type {any} */ (null)));

const PARSED_MAX = 200_000;


const LOOKS = {
  system: ["scroll-text", "system"],
  origin: ["git-fork", "origin"],
  input: ["user", "user"],
  thinking: ["compass", "thinking"],
  text: ["bot", "assistant"],
  tool: ["wrench", "tool"],
  child: ["network", "sub-agent"],
  question: ["message-square", "question"],
  unknown: ["circle-help", "question"],
  usage: ["coins", "usage"],
};

/** @param {{row: import("./rows.js").Row}} properties */
export function RowView({ row }) {
  const Body = BODIES[row.kind];
  const [icon, word] = row.kind === "note" ? [row.icon, "event"] : row.kind === "end" ? [row.isError ? "circle-x" : "circle-check", "end"] : LOOKS[row.kind];
  return html`<div class=${`turn-row is-${row.kind}${row.tone ? ` ${row.tone}` : ""}`} data-seq=${row.seq}>
    <${Moment} row=${row} />
    <span class="what"><${Icon} name=${icon} size=${14} /><span>${word}</span></span>
    <div class="said"><${Body} row=${row} /></div>
  </div>`;
}

/** The time of a row, which leads to its record. */
function Moment({ row }) {
  const { runId } = useContext(RowContext);
  const ms = toMs(row.at);
  const utc = Number.isNaN(ms) ? "" : `${new Date(ms).toISOString().replace("T", " ").replace("Z", "")} UTC, `;
  return html`<a class="clock" href=${recordPath(runId, row.seq)} title=${`${utc}record ${row.seq} of this run`} aria-label=${`${Number.isNaN(ms) ? "" : formatMoment(ms)} record ${row.seq}`}>${Number.isNaN(ms) ? `#${row.seq}` : formatMoment(ms)}</a>`;
}

/** A part that opens; what is inside is made when it is opened. */
function Fold({ id, isOpen = false, summary, children }) {
  const { opened } = useContext(RowContext);
  const [open, setOpen] = useState(opened.get(id) ?? isOpen);
  const toggled = (event) => {
    if (event.currentTarget.open === open) return;
    opened.set(id, event.currentTarget.open);
    setOpen(event.currentTarget.open);
  };
  return html`<details class="fold-row" open=${open} onToggle=${toggled}><summary>${summary}</summary>${open ? html`<div class="inside">${typeof children === "function" ? children() : children}</div>` : null}</details>`;
}

const Unavailable = () => html`<p class="note warn">The text is not available now: the store of long texts does not answer, or the text was erased.</p>`;

function Input({ row }) {
  const from = { api: "by the API", webui: "from this page", replay: "" }[row.source] ?? row.source;
  const images = row.images ? html` <small class="dim">${row.images === 1 ? "with an image" : `with ${row.images} images`}</small>` : null;
  if (!row.text && !row.isUnavailable && !images) return html`<span class="dim">Several long texts; the record names them.</span>`;
  return html`<${LongText} text=${row.text} max=${1_000} />${images}${from ? html` <small class="dim">${from}</small>` : null}${row.isUnavailable ? html`<${Unavailable} />` : null}`;
}

function Text({ row }) {
  return row.isUnavailable ? html`<${Unavailable} />` : html`<${Markdown} text=${row.text} />`;
}

function Thinking({ row }) {
  return html`<${Fold} id=${row.key} summary=${html`<span class="brief dim"><bdi>${previewOf(row.text, 140)}</bdi></span>`}><${LongText} text=${row.text} max=${6_000} /><//>`;
}

function System({ row }) {
  return html`<${Fold} id=${row.key} summary=${html`<span>System prompt</span> <span class="brief dim"><bdi>${previewOf(row.text, 120)}</bdi></span>`}><${LongText} text=${row.text} max=${6_000} /><//>`;
}

function Origin({ row }) {
  if (row.how === "import") return html`<span class="soft">Imported: it happened elsewhere, and is shown here only.</span>`;
  const run = html`<${Id} id=${row.runId} href=${link(`/runs/${row.runId}`)} />`;
  if (row.how === "continues") return html`<span class="soft">Goes on with the conversation of ${run}</span>`;
  return html`<span class="soft">Fork of ${run} after its record <a href=${recordPath(row.runId, row.untilSeq)}>${row.untilSeq}</a>: what happened before is there.</span>`;
}

const STATES = { open: ["live", "at work"], ok: ["", ""], error: ["bad", "error"], unknown: ["warn", "outcome unknown"] };

function Tool({ row }) {
  const { isLive, isNow } = useContext(RowContext);
  const isAtWork = row.state === "open" && (isLive || !isNow);
  const [tone, word] = row.state === "open" && !isAtWork ? ["", "no result"] : STATES[row.state];
  const took = row.durationMs || (row.returnedAt && row.at ? toMs(row.returnedAt) - toMs(row.at) : NaN);
  const summary = html`<b class="name"><bdi>${row.name || "tool"}</bdi></b>
    <span class="brief mono"><bdi>${previewOf(row.input)}</bdi></span>
    ${word ? html`<${Chip} tone=${tone} icon=${isAtWork ? "loader" : undefined}>${word}<//>` : null}
    ${row.resultSeq ? html`<small class="dim number took">${formatDuration(took)}</small>` : null}
    ${row.text ? html`<span class=${`brief outcome ${row.state === "error" ? "bad" : "dim"}`}><bdi>${previewOf(row.text, 200)}</bdi></span>` : null}`;
  return html`<${Fold} id=${row.key} isOpen=${row.state === "error" || row.state === "unknown"} key=${row.state} summary=${summary}>${() => html`<${ToolDetails} row=${row} />`}<//>`;
}

function ToolDetails({ row }) {
  const { runId } = useContext(RowContext);
  const input = row.input;
  const isEdit = typeof input?.old_string === "string" && typeof input?.new_string === "string";
  return html`
    <h3>Arguments</h3>
    ${isEdit ? html`<p class="mono"><bdi>${String(input.path ?? input.file_path ?? "")}</bdi></p><${Difference} before=${input.old_string} after=${input.new_string} label="Change of the file" />` : typeof input === "string" ? html`<${LongText} text=${input} />` : html`<${Json} value=${input ?? {}} open=${2} label="Arguments" />`}
    ${row.resultSeq ? html`<h3>Result${row.settledBy ? html` <small class="dim">settled by ${row.settledBy}</small>` : null}</h3>${row.isUnavailable ? html`<${Unavailable} />` : html`<${ResultText} text=${row.text} />`}` : null}
    <p class="dim links"><a href=${recordPath(runId, row.seq)}>Record ${row.seq}</a>${row.resultSeq ? html` · <a href=${recordPath(runId, row.resultSeq)}>record ${row.resultSeq} of the result</a>` : null} · <code>${row.callId}</code></p>
  `;
}

function ResultText({ text }) {
  const value = useMemo(() => parsed(text), [text]);
  if (value !== undefined) return html`<${Json} value=${value} open=${2} label="Result" />`;
  return text ? html`<div class="result-text"><${LongText} text=${text} max=${3_000} /></div>` : html`<p class="dim">Empty.</p>`;
}

function parsed(text) {
  if (!/^\s*[[{]/.test(text) || text.length > PARSED_MAX) return undefined;
  try {
    return parseJson(text);
  } catch {
    return undefined;
  }
}

function Usage({ row }) {
  const { usage } = row;
  const cache = (usage.cache_read_input_tokens ?? 0) + (usage.cache_creation_input_tokens ?? 0);
  const parts = [
    row.turn ? `turn ${row.turn}` : "",
    usage.model,
    `${formatCount(usage.input_tokens)} in${cache ? ` + ${formatCount(cache)} cache` : ""}`,
    `${formatCount(usage.output_tokens)} out`,
    usage.cost_micros ? formatMoney(usage.cost_micros, usage.currency) : "",
    row.durationMs ? formatDuration(row.durationMs) : "",
  ];
  return html`<small class="dim number">${parts.filter(Boolean).join(" · ")}</small>`;
}

function Child({ row }) {
  const run = html`<a href=${link(`/runs/${row.runId}`)}><b><bdi>${row.agent || "sub-agent"}</bdi></b></a> <${Id} id=${row.runId} />`;
  if (!row.isResult) return html`Started ${run}`;
  const isGood = ["completed", "running", "awaiting_input", "closed"].includes(row.status);
  return html`<span class="line"><${Chip} tone=${isGood ? "good" : "bad"}>${(row.status ?? "").replaceAll("_", " ")}<//> ${run}</span>
    ${row.text ? html`<${Fold} id=${row.key} isOpen=${!isGood} summary=${html`<span class=${`brief ${isGood ? "dim" : "bad"}`}><bdi>${previewOf(row.text, 200)}</bdi></span>`}>${() => html`<${ResultText} text=${row.text} />`}<//>` : null}`;
}

function Note({ row }) {
  const said = html`<b>${row.title}</b>${row.text ? html` <span class="soft"><bdi>${previewOf(row.text, 300)}</bdi></span>` : null}`;
  if (!row.facts && row.text.length <= 300) return said;
  return html`<${Fold} id=${row.key} summary=${said}>${() => html`${row.facts?.summary ? html`<${Markdown} text=${row.facts.summary} />` : null}${row.text.length > 300 ? html`<${LongText} text=${row.text} />` : null}${row.facts ? html`<${Json} value=${row.facts} open=${1} label="Details" />` : null}`}<//>`;
}

const REASONS = { end_turn: "Completed", cancelled: "Cancelled", max_iterations: "Ended: it used all of its turns", max_tokens: "Ended: the answer reached its longest length" };

function End({ row }) {
  const { usage } = row;
  return html`<b class=${row.isError ? "bad" : isCutOff(row.text) ? "warn" : ""}>${row.isError ? "Failed" : (REASONS[row.text] ?? `Ended: ${row.text.replaceAll("_", " ")}`)}</b>
    ${row.isError ? html` <span class="bad"><${LongText} text=${row.text} /></span>` : null}
    ${usage ? html` <small class="dim number">${formatCount(usage.input_tokens)} in · ${formatCount(usage.output_tokens)} out</small>` : null}`;
}

const BODIES = { system: System, origin: Origin, input: Input, thinking: Thinking, text: Text, tool: Tool, usage: Usage, child: Child, question: QuestionCard, unknown: OutcomeCard, note: Note, end: End };

/** The turn in progress: the only part of the page that a token changes. @param {{preview: import("@preact/signals").Signal<import("./model.js").Preview>}} properties */
export function PreviewRow({ preview }) {
  const { text, thinking } = preview.value;
  const length = settledLength(text);
  const settled = useMemo(() => (length ? html`<${Markdown} text=${text.slice(0, length)} />` : null), [length, text.slice(0, 40)]);
  if (!text && !thinking) return null;
  return html`<div class="turn-row is-text" aria-busy="true">
    <span class="clock">now</span>
    <span class="what"><${Icon} name=${text ? "bot" : "compass"} size=${14} /><span>${text ? "assistant" : "thinking"}</span></span>
    <div class="said">${text ? html`${settled}<div class="growing" dir="auto"><bdi>${text.slice(length)}</bdi></div>` : html`<span class="dim growing"><bdi>${thinking.slice(-4_000)}</bdi></span>`}</div>
  </div>`;
}
