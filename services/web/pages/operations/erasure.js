// Erasure of a subject: what is stored of it, what an erasure would make unreadable, and the erasure itself.
import { html, useEffect, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Chip, CopyButton, Field, Id } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Json } from "../../components/json.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { me } from "../../session.js";

const words = (key) => key.replaceAll("_", " ");

export default function Erasure() {
  const query = here.value.query;
  const tenant = query.get("tenant") || me.value?.tenant_id || "";
  const subject = query.get("subject") ?? "";
  const [form, setForm] = useState({ tenant, subject });
  useEffect(() => setForm({ tenant, subject }), [tenant, subject]);
  const list = useResource((signal) => /** @type {Promise<Api.SubjectList>} */ (tenant ? operations.subjects({ tenant }, { signal }) : Promise.resolve({ subjects: [] })), [tenant]);
  const show = (event) => {
    event.preventDefault();
    setQuery({ tenant: form.tenant.trim(), subject: form.subject.trim() }, { replace: false });
  };
  return html`
    <form class="bar" onSubmit=${show} aria-label="Subject">
      <${Field} label="Tenant" inline required value=${form.tenant} onInput=${(value) => setForm((before) => ({ ...before, tenant: value }))} />
      <${Field} label="Subject" inline value=${form.subject} onInput=${(value) => setForm((before) => ({ ...before, subject: value }))} list=${list.data?.subjects ?? []} placeholder="a user, or (tenant)" />
      <${Button} type="submit" kind="primary" isDisabled=${!form.tenant.trim()}>Show<//>
      <span class="grow"></span>
      ${me.value?.is_admin ? html`<${Rewrap} />` : null}
    </form>
    ${subject ? html`<${Subject} key=${`${tenant}/${subject}`} tenant=${tenant} subject=${subject} onDone=${list.reload} />` : html`<section class="card"><header><h2>Subjects with a key</h2></header><${Resource} of=${list}>${({ subjects }) => html`<${Subjects} tenant=${tenant} subjects=${subjects} />`}<//></section>`}
  `;
}

/** @param {{tenant: any, subjects: string[]}} properties */
function Subjects({ tenant, subjects }) {
  if (!subjects.length) return html`<${Empty} icon="users" title=${`No subject of ${tenant || "this tenant"} has a key`} command=${`loomlog subjects ls --tenant ${tenant || "acme"}`}><p>A subject gets a key with its first encrypted content; without LOOMLOG_ENCRYPTION_KEY content is not encrypted, and no erasure can make it unreadable. What is stored of any user is shown above by its name.</p><//>`;
  return html`<div class="scrolls" tabindex="0" role="group" aria-label="Subjects"><${PlainTable} label="Subjects" rows=${subjects} rowKey=${(one) => one} columns=${[{ key: "subject", title: "Subject", cell: (one) => html`<a href=${link("/operations/erasure", { tenant, subject: one })}><bdi>${one}</bdi></a>` }]} /></div>`;
}

function Subject({ tenant, subject, onDone }) {
  const report = useResource((signal) => /** @type {Promise<Api.SubjectReport>} */ (operations.subjects({ tenant, subject }, { signal })), [tenant, subject]);
  const [preview, setPreview] = useState(/** @type {any} */ (null));
  const [erased, setErased] = useState(/** @type {any} */ (null));
  const [isAsked, setAsked] = useState(false);
  const action = useAction();
  const check = async () => {
    const answer = await action.run(() => operations.erase({ subject, dry_run: true }, { tenant }));
    if (answer) setPreview(answer);
  };
  const erase = async (reason) => {
    const answer = await operations.erase({ subject, dry_run: false, confirm: subject, reason }, { tenant });
    setErased(answer);
    setPreview(null);
    toast(answer.incomplete?.length ? "Erased in part: see what is left." : "The subject is erased.", answer.incomplete?.length ? "bad" : "good");
    report.reload();
    onDone();
  };
  return html`
    ${erased ? html`<section class="card" aria-live="polite"><header><h2>Erased</h2><${Id} id=${erased.erasure_id} short=${0} /></header><div class="inside"><${Outcome} result=${erased} /></div></section>` : null}
    <${Resource} of=${report}>${(data) => html`<${Report} report=${data} />
      <section class="card"><header><h2>Erase</h2><${Button} isBusy=${action.isBusy} onClick=${check}>Dry run<//><${Button} kind="danger" icon="trash-2" isDisabled=${!preview} title=${preview ? "" : "First see what it would do"} onClick=${() => setAsked(true)}>Erase<//></header>
        <div class="inside" aria-live="polite">${action.error ? html`<${ErrorState} error=${action.error} compact />` : preview ? html`<${Outcome} result=${preview} />` : html`<p class="hint">An erasure cancels the live runs of the subject, deletes its key, which makes all its encrypted content unreadable for everybody, and deletes its sessions, its memory and what is in plaintext outside of the log. It cannot be undone. The dry run says what it would do.</p>`}</div>
      </section>`}<//>
    ${isAsked ? html`<${Confirm} title="Erase this subject?" confirm="Erase for good" danger typed=${subject} needsReason onConfirm=${erase} onClose=${() => setAsked(false)}><p>All encrypted content of <bdi>${subject}</bdi> of tenant <bdi>${tenant}</bdi> becomes unreadable, its live runs are cancelled, and its sessions and memory are deleted. Nobody can undo this.</p><//>` : null}
  `;
}

/** @param {{report: Api.SubjectReport}} properties */
function Report({ report }) {
  const { tier1_covered: covered, tier2_uncovered: clear, residue } = report;
  return html`<section class="card"><header><h2><bdi>${report.subject}</bdi></h2>${report.known ? null : html`<${Chip}>nothing is known of it<//>`}${report.encrypted ? html`<${Chip} tone="good" icon="lock">content is encrypted<//>` : html`<${Chip} tone="warn" icon="triangle-alert" title="LOOMLOG_ENCRYPTION_KEY is not set">content is not encrypted<//>`}</header>
    <div class="inside halves">
      <div class="fields"><h3>What an erasure covers</h3><${Counts} counts=${covered.counts} /></div>
      <div class="fields"><h3>What stays readable</h3>${clear.total ? html`<${Counts} counts=${clear.counts} tone="warn" /><p class="hint">No key encrypts this: it is in ${formatCount(clear.runs)} ${clear.runs === 1 ? "run" : "runs"}.</p>` : html`<p class="good">Nothing was found in plaintext.</p>`}
        ${residue.truncated ? html`<p class="warn">Only the first ${formatCount(residue.sessions_examined)} sessions were examined.</p>` : null}
        ${report.errors.map((text) => html`<p class="bad" key=${text}>${text}</p>`)}</div>
    </div>
    ${report.keys.length ? html`<${PlainTable} label="Keys" rows=${report.keys} rowKey=${(key) => key.key_id} columns=${[
      { key: "id", title: "Key", cell: (key) => html`<${Id} id=${key.key_id} />` },
      { key: "made", title: "Made", cell: (key) => html`<${Time} at=${key.made_at} />` },
      { key: "state", title: "State", cell: (key) => (key.erased ? html`<${Chip} tone="bad">erased<//>` : html`<${Chip} tone="good">in use<//>`) },
      { key: "when", title: "Erased", cell: (key) => (key.erasure ? html`<${Time} at=${key.erasure.at} /> by <bdi>${key.erasure.by}</bdi>: <bdi class="wraps">${key.erasure.reason || "no reason given"}</bdi> <${CopyButton} text=${key.erasure.position} label="Copy the position of its record" />` : html`<span class="dim">–</span>`) },
    ]} />` : null}
    <details class="inside"><summary>What is not examined here</summary><ul class="plain hints">${report.notes.map((text) => html`<li key=${text}>${text}</li>`)}</ul></details>
  </section>`;
}

function Counts({ counts, tone = "" }) {
  return html`<dl class="facts">${Object.entries(counts).map(([key, count]) => html`<dt key=${key}>${words(key)}</dt><dd class=${`number ${count ? tone : "dim"}`}>${formatCount(count)}</dd>`)}</dl>`;
}

/** What an erasure did, or would do. @param {{result: Api.ErasureResult}} properties */
function Outcome({ result }) {
  const retained = Object.entries(result.retained ?? {});
  return html`<div class="fields">
    ${result.complete === false ? html`<div class="note warn"><p>It is not complete: see what stays.</p></div>` : null}
    ${Object.keys(result.deleted).length ? html`<div><h3>${result.dry_run ? "Would become unreadable or be deleted" : "Unreadable or deleted"}</h3><${Counts} counts=${result.deleted} /></div>` : result.dry_run ? html`<p>The counts of what an erasure covers are above; nothing was changed.</p>` : null}
    ${result.cancelled_runs?.length ? html`<p>${result.cancelled_runs.length} live ${result.cancelled_runs.length === 1 ? "run was" : "runs were"} cancelled.</p>` : null}
    ${retained.length ? html`<div><h3>What stays</h3><ul class="plain hints">${retained.map(([key, text]) => html`<li key=${key}>${text}</li>`)}</ul></div>` : null}
    ${result.receipt ? html`<details><summary>Receipt, to be kept</summary><${Json} value=${result.receipt} open=${1} label="Receipt" /></details>` : null}
    ${result.incomplete?.length ? html`<div class="note bad"><p>Not everything could be deleted yet; erase again:</p><ul class="plain">${result.incomplete.map((text) => html`<li key=${text}>${text}</li>`)}</ul></div>` : null}
  </div>`;
}

function Rewrap() {
  const [isAsked, setAsked] = useState(false);
  const rewrap = async () => {
    const answer = await operations.rewrapKeys();
    toast(`${formatCount(answer.wrapped)} ${answer.wrapped === 1 ? "key is" : "keys are"} encrypted with the current installation key.`);
  };
  return html`<${Button} icon="rotate-ccw" onClick=${() => setAsked(true)}>Encrypt keys again<//>
    ${isAsked ? html`<${Confirm} title="Encrypt all keys again?" confirm="Encrypt again" onConfirm=${rewrap} onClose=${() => setAsked(false)}><p>Every key of a subject is encrypted with the current LOOMLOG_ENCRYPTION_KEY. Afterwards the previous one is no longer needed.</p><//>` : null}`;
}
