// Acts: who changed what with the access of an operator, how, and what was there before. Refusals of a kind are one line.
import { html, useEffect, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Json } from "../../components/json.js";
import { Empty, ErrorState } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { me } from "../../session.js";

const PAGE_SIZE = 50;
/** Tone of an outcome, and what it means. @type {Record<string, [string, string]>} */
const OUTCOMES = {
  begun: ["info", "It is being carried out, or its process has died a moment ago."],
  done: ["good", "It is done."],
  refused: ["warn", "Nothing was done."],
  unknown: ["bad", "It may be done: the answer was lost, or its process died. Look at the target."],
};

export default function Acts() {
  const query = here.value.query;
  const chosen = { tenant: query.get("tenant") ?? "", who: query.get("who") ?? "", what: query.get("what") ?? "", since: query.get("since") ?? "" };
  const [form, setForm] = useState(chosen);
  const inputs = [chosen.tenant, chosen.who, chosen.what, chosen.since];
  useEffect(() => setForm(chosen), inputs);
  const list = usePages(async (cursor, signal) => {
    const asked = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value));
    const page = /** @type {Api.ActPage} */ (await operations.acts({ ...asked, cursor, limit: PAGE_SIZE }, { signal }));
    return { rows: page.acts, next: page.next };
  }, inputs);
  const field = (name, label, placeholder) => html`<${Field} label=${label} inline value=${form[name]} placeholder=${placeholder} onInput=${(value) => setForm((before) => ({ ...before, [name]: value }))} />`;
  const show = (event) => {
    event.preventDefault();
    setQuery({ who: form.who.trim(), what: form.what.trim(), since: form.since.trim() });
  };
  return html`
    <div class="bar"><${TenantField} placeholder="all" />
      <form class="bar" onSubmit=${show} aria-label="Filter">
        ${field("who", "Who", "anyone")}${field("what", "What", "hook, or hook.register")}${field("since", "Since", "2026-01-31T12:00:00Z")}
        <${Button} type="submit" kind="primary">Show<//>
      </form>
      <span class="grow"></span>
      <${Button} small icon="refresh-cw" label="Read the list again" isBusy=${list.isLoading} onClick=${list.reload} /></div>
    <section class="card"><header><h2>Acts</h2><small class="dim">newest first; they are kept for ever</small></header>
      ${list.error
        ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`
        : html`<div class="scrolls" tabindex="0" role="group" aria-label="Acts"><${PlainTable} label="Acts" rows=${list.rows} rowKey=${(act) => act.act_id}
            empty=${list.isLoading ? null : html`<${Empty} icon="shield-check" title="No act is recorded" command="loomlog audit acts"><p>What operators and administrators change is recorded before it is done and after it.</p><//>`}
            columns=${COLUMNS} /></div>
            ${list.isComplete || !list.rows.length ? null : html`<p class="inside"><${Button} isBusy=${list.isLoading} onClick=${list.more}>Show more<//></p>`}`}
    </section>`;
}

/** @typedef {Api.ActPage["acts"][number]} Act */

const COLUMNS = [
  { key: "at", title: "Time", cell: (/** @type {Act} */ act) => html`<${Time} at=${act.at} />` },
  { key: "who", title: "Who", cell: (/** @type {Act} */ act) => html`<bdi>${act.who || "–"}</bdi>${act.token ? html` <small class="dim">token <bdi>${act.token}</bdi></small>` : null}${me.value?.is_admin && act.tenant_id ? html` <small class="dim">of <bdi>${act.tenant_id}</bdi></small>` : null}` },
  { key: "over", title: "Over", cell: (/** @type {Act} */ act) => act.transport },
  { key: "what", title: "What", cell: (/** @type {Act} */ act) => html`<span class="mono">${act.what}</span>` },
  { key: "target", title: "Target", cell: (/** @type {Act} */ act) => html`<bdi class="wraps">${act.target || "–"}</bdi>` },
  { key: "outcome", title: "Outcome", cell: (/** @type {Act} */ act) => html`<${Outcome} act=${act} />` },
  { key: "details", title: "Details", cell: (/** @type {Act} */ act) => html`<${Details} act=${act} />` },
];

/** @param {{act: Act}} properties */
function Outcome({ act }) {
  const [tone, meaning] = OUTCOMES[act.outcome] ?? ["", ""];
  return html`<${Chip} tone=${tone} title=${meaning}>${act.outcome}<//>${act.code ? html` <small class="mono">${act.code}</small>` : null}${act.count ? html` <small class="dim number">${formatCount(act.count)} times</small>` : null}`;
}

/** @param {{act: Act}} properties */
function Details({ act }) {
  const parts = /** @type {[string, any][]} */ ([["request", act.request], ["before", act.before], ["after", act.after]]).filter(([, value]) => value !== undefined);
  return html`<details><summary>${parts.length ? parts.map(([name]) => name).join(", ") : "ids"}</summary>
    <p class="hint">Request <${Id} id=${act.request_id} />, act <${Id} id=${act.act_id} /></p>
    ${parts.map(([name, value]) => html`<div key=${name}><h3>${name}</h3><${Json} value=${value} open=${1} label=${name} /></div>`)}
  </details>`;
}
