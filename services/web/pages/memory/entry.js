// One key: its value now, where it comes from, its past with the differences, and its value at a moment.
import { html, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, Chip, CopyButton, Field, Id } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Difference } from "../../components/difference.js";
import { Json } from "../../components/json.js";
import { RecordLink } from "../../components/record_link.js";
import { ErrorState, Loading } from "../../components/states.js";
import { Time, formatBytes } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, usePages, useResource } from "../../resource.js";
import { here, link } from "../../router.js";
import { may } from "../../session.js";
import { EntryDialog } from "./dialogs.js";
import { toRfc3339 } from "../../values.js";
import { authorOf, comparedText, operationOf, pathOf, runPathOf, withBefore } from "./model.js";

const PAGE = 20;

/** @param {{place: {scope: string, id: string}, entryKey: string, tenant: string, onChanged: () => void}} properties */
export function EntryView({ place, entryKey, tenant, onChanged }) {
  const entry = useResource((signal) => memory.entry(place.scope, place.id, entryKey, { tenant }, { signal }), [place.scope, place.id, entryKey, tenant]);
  const past = usePages(
    async (cursor, signal) => {
      const { versions = [], next = null } = await memory.entry(place.scope, place.id, entryKey, { history: 1, limit: PAGE, cursor, tenant }, { signal });
      return { rows: versions, next };
    },
    [place.scope, place.id, entryKey, tenant],
  );
  const [asked, setAsked] = useState("");
  const is404 = entry.error?.status === 404;
  const now = is404 ? null : entry.data?.entry;
  const changed = () => (entry.reload(), past.reload(), onChanged());
  const remove = async () => {
    await memory.remove(place.scope, place.id, entryKey, { tenant });
    toast(html`<bdi>${entryKey}</bdi> is deleted. Its past is kept below.`);
    changed();
  };
  const prefix = here.value.query.get("prefix") ?? "";
  return html`<div class="pane-scrolls">
    <div class="memory-head">
      <a class="button quiet small" href=${link(pathOf(place.scope, place.id), { tenant, prefix })}>All entries</a>
      <h3 class="memory-key"><bdi>${entryKey}</bdi><${CopyButton} text=${entryKey} label="Copy the key" /></h3>
      ${is404 ? html`<${Chip} tone="warn">not there now<//>` : null}
      ${now?.provenance ? html`<${Chip} tone="info">fact<//>` : null}
      <span class="grow"></span>
      ${now && may("memory:write") ? html`<${Button} small icon="settings" onClick=${() => setAsked("edit")}>Edit<//>` : null}
      ${now && may("substrate:tenant") ? html`<${Button} small kind="danger" icon="trash-2" onClick=${() => setAsked("delete")}>Delete<//>` : null}
      ${is404 && may("memory:write") ? html`<${Button} small icon="plus" onClick=${() => setAsked("edit")}>Set it<//>` : null}
    </div>
    ${entry.error && !is404 ? html`<${ErrorState} error=${entry.error} onRetry=${entry.reload} compact />` : null}
    ${is404 ? html`<p class="note warn">There is no such key now: it was deleted, superseded or has expired, or it was never set. What is known of its past is below.</p>` : null}
    ${now ? html`<${Now} now=${now} />` : entry.isLoading && !is404 ? html`<${Loading} rows=${4} />` : null}
    <${Past} past=${past} />
    <${Moment} place=${place} entryKey=${entryKey} tenant=${tenant} />
    ${asked === "edit" ? html`<${EntryDialog} place=${place} entryKey=${entryKey} entry=${now} tenant=${tenant} onReload=${entry.reload} onClose=${() => setAsked("")} onDone=${changed} />` : null}
    ${asked === "delete" ? html`<${Confirm} title="Delete this key?" confirm="Delete" danger onClose=${() => setAsked("")} onConfirm=${remove}><p><bdi>${entryKey}</bdi> is not found any more by agents or by search. Its changes of the last 30 days stay readable here, all of them in the log.</p><//>` : null}
  </div>`;
}

function Now({ now }) {
  return html`<section class="card">
    <header><h2>Value</h2><small class="dim number">revision ${now.revision} · ${formatBytes(now.bytes)}</small></header>
    <div class="inside stack">
      <${Json} value=${now.value} open=${3} label="The value" />
      <dl class="facts">
        <dt>Set first</dt><dd><${Time} at=${now.created_at} /></dd>
        <dt>Changed</dt><dd><${Time} at=${now.updated_at} /> by <${Author} source=${now.source} /></dd>
        <dt>Expires</dt><dd>${now.expires_at ? html`<${Time} at=${now.expires_at} /> <small class="dim">(<${Time} at=${now.expires_at} relative />)</small>` : "never"}</dd>
        <dt>Found by meaning</dt><dd>${now.embed ? "yes, it asks for a vector" : "no"}</dd>
        ${now.provenance ? html`<dt>Fact</dt><dd><${Provenance} of=${now.provenance} /></dd>` : null}
      </dl>
    </div>
  </section>`;
}

/** Where a fact was learned. @param {{of: any, knownRun?: string}} properties knownRun: a run that is named beside it anyway */
export function Provenance({ of, knownRun = "" }) {
  const run = of.source_run_id === knownRun ? "" : of.source_run_id;
  return html`<span class="line"><${Chip}>${of.class || of.fact_class || "fact"}<//>
    ${run ? html`<span>learned in <${Id} id=${run} href=${link(`/runs/${encodeURIComponent(run)}`)} /></span>` : null}
    ${of.source_session_id ? html`<span>session <${Id} id=${of.source_session_id} href=${link("/runs", { session_id: of.source_session_id })} /></span>` : null}
    ${(of.spans ?? []).map((span, at) => html`<a key=${at} href=${link(`/runs/${encodeURIComponent(span.run_id)}/events`, { seq: span.seq })} title=${`Characters ${span.start} to ${span.end} of event ${span.seq}`}>said here</a>`)}</span>`;
}

/** Who made a change, and in which call of which run. @param {{source: any}} properties */
export function Author({ source }) {
  const path = runPathOf(source);
  const name = html`<bdi>${authorOf(source) || "unknown"}</bdi>`;
  if (!path) return name;
  return html`<span>${name} in <a href=${link(path)} title=${source.run_id}>${source.turn ? `turn ${source.turn}, call ${source.call + 1}` : "a run"}</a> <${Id} id=${source.run_id} href=${link(`/runs/${encodeURIComponent(source.run_id)}`)} /></span>`;
}

function Past({ past }) {
  const rows = withBefore(past.rows, past.isComplete);
  return html`<section class="card">
    <header><h2>History</h2><small class="dim">newest first, of the last 30 days</small></header>
    ${past.error ? html`<div class="inside"><${ErrorState} error=${past.error} onRetry=${past.reload} compact /></div>` : null}
    ${!rows.length && past.isLoading ? html`<${Loading} rows=${3} />` : null}
    ${!rows.length && past.isComplete ? html`<p class="inside dim">Nothing of this key is known from the last 30 days.</p>` : null}
    <ol class="memory-past">${rows.map(({ version, before }, at) => html`<${Version} key=${`${version.revision}/${version.at}`} version=${version} before=${before} isNewest=${at === 0} />`)}</ol>
    ${rows.length && !past.isComplete ? html`<p class="inside"><${Button} small isBusy=${past.isLoading} onClick=${past.more}>Older changes<//></p>` : null}
  </section>`;
}

function Version({ version, before, isNewest }) {
  const hasValue = "value" in version;
  const what = hasValue ? (before && "value" in before ? "What changed" : "Its value") : before && "value" in before ? "What it was" : "Details";
  return html`<li>
    <div class="line">
      <span class="number nowrap"><${Time} at=${version.at} /></span>
      <${Chip} tone=${hasValue ? "" : "warn"}>${operationOf(version)}<//>
      <span><${Author} source=${version.source} /></span>
      ${version.by_key ? html`<span>by <a href=${link(here.value.path, { ...Object.fromEntries(here.value.query), key: version.by_key })}><bdi>${version.by_key}</bdi></a></span>` : null}
      ${version.reason ? html`<span class="soft">because: <bdi>${version.reason}</bdi></span>` : null}
      <span class="grow"></span>
      <small class="dim number nowrap">revision ${version.revision}${hasValue ? ` · ${formatBytes(version.bytes)}` : ""}</small>
      ${version.position ? html`<${RecordLink} position=${version.position} />` : null}
    </div>
    <details open=${isNewest && Boolean(before)}><summary>${what}</summary>
      ${what === "What changed"
        ? html`<${Difference} before=${comparedText(before)} after=${comparedText(version)} label=${`Changes of revision ${version.revision}`} />`
        : html`<${Json} value=${what === "Its value" ? version.value : what === "What it was" ? before.value : version} open=${2} label=${`${what}, revision ${version.revision}`} />`}
    </details>
  </li>`;
}

/** The value at a time, at a record, or as a run saw it when it started. */
function Moment({ place, entryKey, tenant }) {
  const [by, setBy] = useState("at");
  const [text, setText] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const action = useAction();
  const fields = { at: ["Time", "datetime-local", "In your time zone."], event: ["Record", "text", "topic/partition:offset, as the history shows it."], before_run: ["Run", "text", "As it was when the run started."] };
  const [label, type, hint] = fields[by];
  const sent = by === "at" ? toRfc3339(text) : text.trim();
  const ask = async (event) => {
    event.preventDefault();
    const found = await action.run(() => memory.at({ scope: place.scope, scope_id: place.id, key: entryKey, tenant, [by]: sent }));
    setAnswer(found || null);
  };
  return html`<section class="card">
    <header><h2>Value at a moment</h2></header>
    <div class="inside stack">
      <form class="fields memory-moment" onSubmit=${ask}>
        <${Field} label="By" value=${by} onInput=${(value) => (setBy(value), setText(""), setAnswer(null), action.clear())} options=${[{ value: "at", title: "time" }, { value: "event", title: "record of the log" }, { value: "before_run", title: "start of a run" }]} />
        <${Field} key=${by} label=${label} type=${type} step=${type === "datetime-local" ? 1 : undefined} value=${text} onInput=${setText} hint=${hint} />
        <${Button} type="submit" icon="rewind" isBusy=${action.isBusy} isDisabled=${!sent}>Show<//>
      </form>
      ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
      ${answer
        ? answer.existed
          ? html`<div class="stack"><p>Revision ${answer.version.revision}, set <${Time} at=${answer.version.at} /> by <${Author} source=${answer.version.source} />:</p><${Json} value=${answer.value} open=${3} label="Value at that moment" /></div>`
          : html`<p class="note">${answer.version ? html`It was not there: ${operationOf(answer.version)} <${Time} at=${answer.version.at} />${"value" in answer.version ? ", and had expired" : ""}.` : "It was not there yet, or its change is older than 30 days."}</p>`
        : null}
    </div>
  </section>`;
}
