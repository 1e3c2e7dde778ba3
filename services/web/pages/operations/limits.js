// Budget limits of a calendar month with what is used of them, and how many runs are admitted now.
import { html, useState } from "../../ui.js";
import { activity, operations } from "../../api.js";
import { Button, Checkbox, Chip, Field } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { RecordsLink } from "../../components/record_link.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { here, link } from "../../router.js";
import { may, me } from "../../session.js";
import { BudgetBars } from "./budget_bars.js";
import { BudgetMonth } from "./budget_month.js";
import { accountOf, formOf, limitBody } from "./budget_model.js";

const EVERY_MS = 5_000;

export default function Limits() {
  const tenant = here.value.query.get("tenant") ?? "";
  const list = useResource((signal) => operations.limits({ tenant }, { signal }), [tenant], { everyMs: EVERY_MS });
  const [edited, setEdited] = useState(/** @type {any} */ (null));
  const [removed, setRemoved] = useState(/** @type {any} */ (null));
  const canSet = may("substrate:tenant");
  const remove = async () => {
    await operations.removeLimit({ scope: removed.scope, tenant: removed.scope === "operator" ? "" : removed.tenant_id, scope_id: removed.scope_id });
    toast("The limit is removed.");
    list.reload();
  };
  return html`
    <section class="card"><header><h2>Budgets of this month</h2><${TenantField} placeholder="all" />${canSet ? html`<${Button} icon="plus" onClick=${() => setEdited({ limit: null })}>Set a limit<//>` : null}</header>
      <${Resource} of=${list} rows=${4}>${({ limits }) => html`<${PlainTable}
        label="Budgets" rows=${limits} rowKey=${(one) => `${one.tenant_id}/${one.scope}/${one.scope_id}`}
        empty=${html`<${Empty} icon="coins" title="No limit is set" command="loomlog limits set --tenant acme --hard 2000000"><p>Nothing ends what is spent. A limit counts tokens or money of a calendar month in UTC: of the installation, of a tenant, or of a user.</p><//>`}
        columns=${[
          { key: "account", title: "Whose", cell: (one) => html`<bdi>${accountOf(one)}</bdi>${one.strict ? html` <${Chip} title="A call begins only if its worst case fits">strict<//>` : null}` },
          { key: "use", title: "Used", cell: (one) => html`<${BudgetBars} limit=${one} />` },
          { key: "set", title: "Set", cell: (one) => html`<${Time} at=${one.updated_at} relative /> <span class="dim">by <bdi>${one.updated_by}</bdi></span> <${RecordsLink} aggregate="budget:/installation" from=${one.updated_at} type="LimitSet" label="record" />` },
          { key: "act", title: html`<span class="spoken">Actions</span>`, align: "right", hidden: !canSet, cell: (one) => (one.scope === "operator" && !may("substrate:admin") ? null : html`<span class="actions right"><${Button} small onClick=${() => setEdited({ limit: one })}>Change<//><${Button} small icon="trash-2" label=${`Remove the limit of ${accountOf(one)}`} onClick=${() => setRemoved(one)} /></span>`) },
        ]}
      />${limits.length ? html`<${BudgetMonth} limits=${limits} />` : null}`}<//>
    </section>
    ${may("substrate:admin") ? html`<${Admission} />` : null}
    ${edited ? html`<${LimitDialog} limit=${edited.limit} onClose=${() => setEdited(null)} onDone=${list.reload} />` : null}
    ${removed ? html`<${Confirm} title="Remove this limit?" confirm="Remove" danger onConfirm=${remove} onClose=${() => setRemoved(null)}><p>Nothing limits <bdi>${accountOf(removed)}</bdi> any more, other than wider limits. What it used this month is not counted on; reports of usage keep it.</p><//>` : null}
  `;
}

/** @param {{limit: Api.Limit | null, onClose: any, onDone: any}} properties */
function LimitDialog({ limit, onClose, onDone }) {
  const [form, setForm] = useState(formOf(limit));
  const action = useAction();
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const isAdmin = may("substrate:admin");
  const save = async () => {
    const done = await action.run(async () => operations.setLimit(limitBody(form)));
    if (done === false) return;
    toast("The limit holds for every call from now on.");
    onDone();
    onClose();
  };
  return html`<${Dialog} title=${limit ? `Limit of ${accountOf(limit)}` : "Set a limit"} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} onClick=${save}>Set<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), save())}>
      ${limit
        ? null
        : html`<div class="fields two">
            <${Field} label="Of" value=${form.scope} onInput=${set("scope")} options=${[...(isAdmin ? [{ value: "operator", title: "the installation" }] : []), { value: "tenant", title: "a tenant" }, { value: "user", title: "a user" }]} />
            ${form.scope === "operator" ? null : html`<${Field} label="Tenant" value=${form.tenant} onInput=${set("tenant")} placeholder=${me.value?.tenant_id} hint="Empty: your own." />`}
            ${form.scope === "user" ? html`<${Field} label="User" value=${form.user} onInput=${set("user")} required />` : null}
          </div>`}
      <div class="fields two">
        <${Field} label="Tokens, soft" value=${form.softTokens} onInput=${set("softTokens")} placeholder="1,500,000" hint="Reported once used; nothing ends." />
        <${Field} label="Tokens, hard" value=${form.hardTokens} onInput=${set("hardTokens")} placeholder="2,000,000" hint="Once used, no call begins." />
        <${Field} label="Money, soft" value=${form.softMoney} onInput=${set("softMoney")} placeholder="40.00" hint=${`In ${limit?.currency ?? "the currency of the price list"}.`} />
        <${Field} label="Money, hard" value=${form.hardMoney} onInput=${set("hardMoney")} placeholder="50.00" hint="Never exceeded: the worst case of a call must fit." />
      </div>
      <${Checkbox} label="Strict" checked=${form.strict} onChange=${set("strict")} hint="The hard limit of tokens is never exceeded either." />
      <p class="hint">An empty amount is no limit. ${limit ? "These amounts replace the earlier ones." : ""}</p>
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}

function Admission() {
  const stats = useResource((signal) => activity.concurrency({ signal }), [], { everyMs: EVERY_MS });
  const routing = useResource((signal) => operations.routing({ signal }), []);
  const most = new Map((routing.data?.providers ?? []).map((one) => [one.provider, one.max_concurrent]));
  return html`<section class="card"><header><h2>Runs admitted now</h2></header><${Resource} of=${stats} rows=${3}>${(data) => html`
    <div class="inside"><dl class="figures">
      <div><dt>Active</dt><dd>${formatCount(data.active)}</dd></div>
      <div title="active runs that do not wait for a person, a child or a pause"><dt>At work</dt><dd>${formatCount(data.at_work)}</dd></div>
      <div title="starts that this api has accepted and no runtime has taken yet"><dt>Starts that wait</dt><dd>${formatCount(data.queued)}</dd></div>
    </dl></div>
    <div class="halves">
      <${PlainTable} label="Active runs by provider" rows=${Object.entries(data.providers)} rowKey=${([name]) => name} empty=${html`<p class="state quiet">No run is active.</p>`} columns=${[
        { key: "provider", title: "Provider", cell: ([name]) => html`<bdi>${name || "not chosen yet"}</bdi>` },
        { key: "active", title: "Active runs", align: "right", cell: ([, one]) => formatCount(one.active) },
        { key: "most", title: "Most calls at once", align: "right", cell: ([name]) => (most.get(name) ? formatCount(most.get(name)) : html`<span class="dim">no limit</span>`) },
      ]} />
      <${PlainTable} label="Active runs by user" rows=${Object.entries(data.per_user).sort((a, b) => b[1] - a[1]).slice(0, 20)} rowKey=${([user]) => user} empty=${html`<p class="state quiet">No user has an active run.</p>`} columns=${[
        { key: "user", title: "User", cell: ([user]) => (user ? html`<a href=${link("/runs", { status: "running", user_id: user })}><bdi>${user}</bdi></a>` : html`<span class="dim">none</span>`) },
        { key: "active", title: "Active runs", align: "right", cell: ([, count]) => formatCount(count) },
      ]} />
    </div>`}<//></section>`;
}
