// One webhook: the address for its sender, what becomes of a request, its last deliveries, and a dry run.
import { html } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Chip, CopyButton, Id, Tabs } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { formatBytes, formatCount, formatDuration } from "../../components/time.js";
import { usePageTitle } from "../../frame.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { may } from "../../session.js";
import { hookWords } from "../schedules/hooks.js";
import { activeId, useContent } from "./content.js";
import { Deliveries } from "./deliveries.js";
import { DryRun } from "./dry_run.js";
import { WebhookState } from "./list.js";
import { addressOf, addressPath, curlOf, mappingRows, partsOf, proofOf, sourceWords } from "./model.js";

const ADMIN = "substrate:admin";
const BODY_BYTES = 1024 * 1024;
const SYNC_MS = 30_000;

/** @param {{address: string}} properties [tenant/]name */
export function WebhookPage({ address }) {
  const { tenant: owner, name } = partsOf(address);
  const tenant = owner || (here.value.query.get("tenant") ?? "");
  usePageTitle(name);
  const found = useResource(async (signal) => ({ row: (await library.list({ kind: "webhook", name, tenant }, { signal })).definitions[0] ?? null }), [name, tenant]);
  return html`<div class="page">
    <${Resource} of=${found}>${({ row }) => (row ? html`<${Found} row=${row} tenant=${tenant} />` : html`<${Missing} name=${name} tenant=${tenant} />`)}<//>
  </div>`;
}

function Crumbs({ tenant }) {
  return html`<nav class="crumbs" aria-label="Where you are"><a href=${link("/webhooks", { tenant })}>Webhooks</a></nav>`;
}

function Missing({ name, tenant }) {
  return html`<header><${Crumbs} tenant=${tenant} /><h1><bdi>${name}</bdi></h1></header>
    <${Empty} icon="webhook" title="There is no webhook of this name" command="loomlog webhooks ls">
      <p class="actions"><${Button} href=${link("/webhooks", { tenant })}>All webhooks<//><${Button} kind="primary" icon="plus" href=${link("/library/create/webhook", { name, tenant })}>Create it<//></p>
    <//>`;
}

function Found({ row, tenant }) {
  const id = activeId(row);
  const definition = useContent(id, tenant);
  const address = addressOf(row);
  const tabs = [...(may(ADMIN) ? [{ key: "deliveries", title: "Deliveries", icon: "inbox" }, { key: "test", title: "Dry run", icon: "play" }] : []), { key: "about", title: "About", icon: "info" }];
  const wanted = here.value.query.get("view") ?? "";
  const view = tabs.some((tab) => tab.key === wanted) ? wanted : tabs[0].key;
  const name = row.name.split("/").map(encodeURIComponent).join("/");
  return html`
    <header>
      <${Crumbs} tenant=${tenant} />
      <h1><bdi>${row.name}</bdi></h1>
      <${WebhookState} row=${row} definition=${definition} />
      ${row.source === "file" ? html`<${Chip} tone="info">file<//>` : null}
      <span class="grow"></span>
      <${Button} icon="library" href=${link(`/library/webhook/${name}`, { tenant })}>Definition<//>
      <${Button} icon="git-fork" href=${link(`/library/fork/webhook/${name}`, { tenant })} title="A new version, which becomes active">Fork<//>
      ${row.description ? html`<p class="sub"><bdi>${row.description}</bdi></p>` : null}
    </header>
    ${definition === undefined ? null : definition ? html`<${Address} row=${row} address=${address} definition=${definition} />` : html`<p class="note warn">No version of it is active, so it answers 404. Its deliveries stay listed.</p>`}
    <${Tabs} label=${row.name} selected=${view} onSelect=${(key) => setQuery({ view: key === tabs[0].key ? "" : key })} tabs=${tabs} />
    ${view === "about" ? html`<${About} row=${row} definition=${definition} id=${id} tenant=${tenant} />` : null}
    ${view === "deliveries" ? html`<${Deliveries} address=${address} isOn=${Boolean(definition) && definition.enabled !== false} definition=${definition} />` : null}
    ${view === "test" ? html`<${DryRun} address=${address} definition=${definition} />` : null}
    ${may(ADMIN) ? null : html`<p class="hint">Deliveries, dry runs and replays need the scope <code>${ADMIN}</code>.</p>`}
  `;
}

/** What the sender is told. */
function Address({ row, address, definition }) {
  const proof = proofOf(definition.auth);
  const url = location.origin + addressPath(address);
  const does = definition.delivery === "channel"
    ? html`publishes the whole body to <a href=${link(`/channels/${String(definition.channel).split("/").map(encodeURIComponent).join("/")}`)}><bdi>${definition.channel}</bdi></a>`
    : html`starts a run of <a href=${link(`/library/agent/${encodeURIComponent(definition.agent)}`)}><bdi>${definition.agent}</bdi></a>`;
  return html`<section class="card" aria-label="For the sender">
    <header><h2>For the sender</h2><${CopyButton} text=${curlOf(url, proof)} label="Copy a command that sends a request">a request as curl<//></header>
    <div class="inside"><dl class="facts">
      <dt>Address</dt><dd><span class="id"><code>${url}</code><${CopyButton} text=${url} label="Copy the address" /></span>${row.source === "tenant" ? null : html`<div class="hint">The same from outside, with the host that senders reach. It answers below the address of any tenant too; its runs belong to the tenant <bdi>${definition.tenant_id || "default"}</bdi>.</div>`}</dd>
      <dt>Proof</dt><dd>${proof.kind === "none" ? html`<span class="warn">${proof.text}</span>` : html`${proof.header ? html`<code>${proof.header}</code>: ` : null}${proof.text}. <span class="dim">The secret is the value of <code>${proof.variable}</code> where the api runs; it is shown nowhere.</span>`}</dd>
      <dt>Delivery id</dt><dd>${definition.auth?.delivery_id_header ? html`the header <code>${definition.auth.delivery_id_header}</code>, else a hash of the body` : html`the header <code>webhook-id</code>, else a hash of the body`}. <span class="dim">An id is taken once.</span></dd>
      <dt>A request</dt><dd>${does}</dd>
    </dl></div>
  </section>`;
}

function About({ row, definition, id, tenant }) {
  if (!definition) return html`<p class="hint">${definition === undefined ? "Reading…" : "No version of it is active."}</p>`;
  const limit = definition.rate_limit ?? {};
  const sync = definition.sync_response;
  const credentials = [...Object.keys(definition.user_credentials ?? {}), ...Object.keys(definition.user_credentials_from_env ?? {})];
  return html`<div class="halves">
    ${definition.delivery === "channel"
      ? html`<section class="card"><header><h2>Message</h2></header><div class="inside"><p>The body as it came is the message. A mapping is not used.</p></div></section>`
      : html`<section class="card" aria-label="Mapping">
          <header><h2>From the body to the run</h2></header>
          <${PlainTable} label="Mapping" rows=${mappingRows(definition)} rowKey=${(one) => one.target} columns=${[
            { key: "target", title: "Field of the run", cell: (one) => html`<code>${one.target}</code>` },
            { key: "from", title: "Its value", cell: (one) => html`${sourceWords(one.from)} ${one.from === "$" ? null : html`<code>${one.from}</code>`}` },
          ]} />
          <p class="hint inside">All of it is told to the agent as untrusted.</p>
        </section>`}
    <section class="card" aria-label="Limits and more">
      <header><h2>Limits and more</h2></header>
      <div class="inside"><dl class="facts">
        <dt>Rate</dt><dd>${formatCount(limit.requests_per_minute || 60)} a minute, ${formatCount(limit.burst || 10)} at once</dd>
        <dt>Body</dt><dd>at most ${formatBytes(Math.min(definition.body_size_limit_bytes || BODY_BYTES, BODY_BYTES))}</dd>
        <dt>Waiting</dt><dd>${sync?.enabled ? html`<code>?sync=true</code> waits for the end of the run, ${formatDuration(sync.timeout_ms || SYNC_MS)} at most` : "the answer comes before the run has ended"}</dd>
        ${definition.user_tier ? html`<dt>Tier</dt><dd>${definition.user_tier}</dd>` : null}
        ${credentials.length ? html`<dt>Credentials</dt><dd>${credentials.map((one) => html`<${Chip} key=${one}>${one}<//> `)}</dd>` : null}
        ${definition.on_complete?.length ? html`<dt>Afterwards</dt><dd><ol class="hooks">${definition.on_complete.map((hook, at) => html`<li key=${at}>${hookWords(hook)}</li>`)}</ol></dd>` : null}
        <dt>Version</dt><dd><${Id} id=${id} short=${0} href=${link(`/library/version/${encodeURIComponent(id)}`, { tenant })} /></dd>
        <dt>Tenant</dt><dd><bdi>${row.source === "tenant" ? row.tenant_id : definition.tenant_id || "default"}</bdi></dd>
      </dl></div>
    </section>
  </div>`;
}
