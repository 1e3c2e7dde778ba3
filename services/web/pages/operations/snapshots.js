// State files: everything, or a tenant, as one file that another installation can restore.
import { html, useRef, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Checkbox, Chip, Field, Id } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatBytes, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";

export default function Snapshots() {
  const list = useResource((signal) => operations.snapshots({ signal }), []);
  const [isMaking, setMaking] = useState(false);
  const [restored, setRestored] = useState(/** @type {any} */ (null));
  const [removed, setRemoved] = useState(/** @type {any} */ (null));
  const file = useRef(/** @type {HTMLInputElement | null} */ (null));
  const remove = async () => {
    await operations.removeSnapshot(removed.id);
    toast("The state file is deleted.");
    list.reload();
  };
  const chosen = (event) => {
    const [picked] = event.currentTarget.files ?? [];
    if (picked) setRestored({ file: picked });
    event.currentTarget.value = "";
  };
  return html`
    <section class="card"><header><h2>State files</h2>
        <input type="file" hidden ref=${file} accept=".gz,.json,.gzip,application/gzip,application/json" onChange=${chosen} aria-label="State file to restore" />
        <${Button} icon="upload" onClick=${() => file.current?.click()}>Restore a file<//>
        <${Button} kind="primary" icon="plus" onClick=${() => setMaking(true)}>Create<//></header>
      <${Resource} of=${list}>${({ entries }) => html`<${PlainTable} label="State files" rows=${entries} rowKey=${(one) => one.id}
        empty=${html`<${Empty} icon="archive" title="There is no state file yet" command="loomlog snapshot create"><p>A state file has every run with its events and payloads, pauses, limits, and what aggregates hold; another installation continues from it. It is stored beside the payloads, and can be downloaded.</p><//>`}
        columns=${[
          { key: "id", title: "File", cell: (one) => html`<${Id} id=${one.id} /> ${one.label ? html`<bdi>${one.label}</bdi>` : null}${one.warnings.length ? html` <${Chip} tone="warn" icon="triangle-alert" title=${one.warnings.join("\n")}>${one.warnings.length} ${one.warnings.length === 1 ? "warning" : "warnings"}<//>` : null}` },
          { key: "at", title: "Made", sort: (one) => one.created_at, cell: (one) => html`<${Time} at=${one.created_at} /> <small class="dim">by <bdi>${one.created_by}</bdi></small>` },
          { key: "of", title: "Of", cell: (one) => (one.tenant ? html`tenant <bdi>${one.tenant}</bdi>` : "everything") },
          { key: "runs", title: "Runs", align: "right", sort: (one) => one.runs, cell: (one) => html`<span title=${`${one.live_runs} of them live`}>${formatCount(one.runs)}</span>` },
          { key: "events", title: "Events", align: "right", sort: (one) => one.events + one.aggregate_events, cell: (one) => html`<span title=${`${formatCount(one.events)} of runs, ${formatCount(one.aggregate_events)} of ${formatCount(one.aggregates)} aggregates`}>${formatCount(one.events + one.aggregate_events)}</span>` },
          { key: "size", title: "Size", align: "right", sort: (one) => one.byte_size, cell: (one) => html`<span title=${`sha256 ${one.sha256}`}>${formatBytes(one.byte_size)}</span>` },
          { key: "act", title: html`<span class="spoken">Actions</span>`, align: "right", cell: (one) => html`<span class="actions right nowrap">
            <${Button} small icon="download" href=${operations.snapshotPath(one.id, "gzip")} download label=${`Download ${one.id}`} title="Download the file (gzip)" />
            <${Button} small onClick=${() => setRestored({ entry: one })}>Restore<//>
            <${Button} small icon="trash-2" label=${`Delete ${one.id}`} onClick=${() => setRemoved(one)} /></span>` },
        ]} />`}<//>
    </section>
    ${isMaking ? html`<${CreateDialog} onClose=${() => setMaking(false)} onDone=${list.reload} />` : null}
    ${restored ? html`<${RestoreDialog} source=${restored} onClose=${() => setRestored(null)} />` : null}
    ${removed ? html`<${Confirm} title="Delete this state file?" confirm="Delete" danger typed=${removed.label || removed.id.slice(-6)} onConfirm=${remove} onClose=${() => setRemoved(null)}><p>${removed.id} of <${Time} at=${removed.created_at} /> is deleted for good. What is in the log stays as it is.</p><//>` : null}
  `;
}

function CreateDialog({ onClose, onDone }) {
  const [form, setForm] = useState({ label: "", tenant: "", history: true, since: "" });
  const action = useAction();
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const make = async () => {
    const body = { include_history: form.history, ...(form.label.trim() ? { label: form.label.trim() } : {}), ...(form.tenant.trim() ? { tenant: form.tenant.trim() } : {}), ...(form.history && form.since ? { include_history_since: form.since } : {}) };
    const made = await action.run(() => operations.createSnapshot(body));
    if (made === false) return;
    toast(html`The file has ${formatCount(made.runs)} runs in ${formatBytes(made.byte_size)}.`);
    onDone();
    onClose();
  };
  return html`<${Dialog} title="Create a state file" onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} onClick=${make}>Create<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), make())}>
      <${Field} label="Label" value=${form.label} onInput=${set("label")} placeholder="before the upgrade" />
      <${Field} label="Tenant" value=${form.tenant} onInput=${set("tenant")} hint="Empty: everything of the installation." />
      <${Checkbox} label="Runs that have ended too" checked=${form.history} onChange=${set("history")} hint="Otherwise live runs only, and those that they continue." />
      ${form.history ? html`<${Field} label="Only runs that ended since" type="date" value=${form.since} onInput=${set("since")} hint="Empty: all." />` : null}
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}

/** First the dry run, which counts what would be added; then the restore itself, once a word is typed. */
function RestoreDialog({ source, onClose }) {
  const [options, setOptions] = useState({ sealed: false, in_clear: false });
  const [checked, setChecked] = useState(/** @type {any} */ (null));
  const [done, setDone] = useState(/** @type {any} */ (null));
  const [typed, setTyped] = useState("");
  const action = useAction();
  const name = source.file ? source.file.name : source.entry.label || source.entry.id;
  const restore = (dryRun) => {
    const how = { dry_run: dryRun, ...options };
    return source.file ? operations.restoreFile(source.file, how) : operations.restoreSnapshot(source.entry.id, how);
  };
  const check = async () => {
    const answer = await action.run(() => restore(true));
    if (answer) setChecked(answer);
  };
  const go = async () => {
    const answer = await action.run(() => restore(false));
    if (answer) setDone(answer);
  };
  const set = (key) => (value) => (setChecked(null), setOptions((before) => ({ ...before, [key]: value })));
  const actions = done
    ? html`<${Button} kind="primary" onClick=${onClose}>Close<//>`
    : html`<${Button} onClick=${onClose}>Cancel<//><${Button} isBusy=${action.isBusy && !checked} isDisabled=${action.isBusy} onClick=${check}>Check first<//><${Button} kind="danger" isBusy=${action.isBusy && Boolean(checked)} isDisabled=${!checked || typed !== "restore" || action.isBusy} onClick=${go}>Restore<//>`;
  return html`<${Dialog} title="Restore a state file" onClose=${onClose} actions=${actions}>
    ${done
      ? html`<p class="note good">The state of <bdi>${name}</bdi> is restored. Live runs continue here.</p><${Counts} result=${done} />`
      : html`<p><bdi>${name}</bdi>${source.file ? html` <span class="dim">(${formatBytes(source.file.size)})</span>` : null}: what exists already is not changed; what is missing is added, and its live runs continue here.</p>
        <${Checkbox} label="Also live runs whose keys are missing" checked=${options.sealed} onChange=${set("sealed")} hint="Their content cannot be read; they end as cancelled." />
        <${Checkbox} label="Also content that is not encrypted in the file" checked=${options.in_clear} onChange=${set("in_clear")} hint="Where content is encrypted here: it stays readable." />
        ${checked ? html`<${Counts} result=${checked} /><${Field} label="Type restore to go on" value=${typed} onInput=${setTyped} required />` : html`<p class="hint">The check reads the whole file and writes nothing.</p>`}`}
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}

const COUNTS = [
  ["Runs", "runs_restored"], ["of them live, which continue", "runs_continued"], ["Runs that are here already", "runs_skipped"], ["Runs that failed", "runs_failed"], ["Runs without their keys", "runs_sealed"],
  ["Events of runs", "events_restored"], ["Payloads", "blobs_restored"], ["Pauses", "pauses_restored"], ["Limits", "limits_restored"],
  ["Aggregates", "aggregates_restored"], ["Aggregates that are here already", "aggregates_skipped"], ["Aggregates that failed", "aggregates_failed"], ["Keys of memory", "memory_restored"],
];

function Counts({ result }) {
  return html`<h3>${result.dry_run ? "Would be added" : "Added"}</h3>
    <dl class="facts">${COUNTS.filter(([, key]) => result[key] || ["runs_restored", "runs_skipped"].includes(key)).map(([title, key]) => html`<dt key=${key}>${title}</dt><dd class=${`number${key.endsWith("failed") ? " bad" : ""}`}>${formatCount(result[key])}</dd>`)}</dl>
    ${result.warnings.length ? html`<div class="note warn"><ul class="plain">${result.warnings.map((text) => html`<li key=${text}>${text}</li>`)}</ul></div>` : null}`;
}
