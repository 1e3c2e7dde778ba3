// Aggregates of any family, from its declaration alone: list, one of them, its questions, and its commands as forms.
import { html, useState } from "../ui.js";
import { ApiError, entities } from "../api.js";
import { Button, Chip, CopyButton, Field, Tabs } from "../components/controls.js";
import { Json } from "../components/json.js";
import { Empty, ErrorState, Resource } from "../components/states.js";
import { PlainTable, Table } from "../components/table.js";
import { TenantField } from "../components/tenant.js";
import { Time, formatCount } from "../components/time.js";
import { printJson } from "../exact_json.js";
import { usePageTitle } from "../frame.js";
import { usePages, useResource } from "../resource.js";
import { here, link, setQuery } from "../router.js";
import { may } from "../session.js";
import { CommandDialog } from "./entities/command.js";
import { familiesOf } from "./entities/schema.js";

const PAGE_SIZE = 100;
const SUMMARY_MAX = 160;

/** @param {{params: {family?: string}}} properties */
export default function Entities({ params }) {
  const document = useResource((signal) => entities.document({ signal }), []);
  return html`<${Resource} of=${document}>${(openapi) => {
    const families = familiesOf(openapi);
    if (!params.family) return html`<${Families} families=${families} />`;
    const family = families.find((one) => one.name === params.family);
    if (!family) return html`<${ErrorState} isPage error=${new ApiError(404, "not_found", `This server has no family ${params.family} whose aggregates can be listed${families.length ? `; it has ${families.map((one) => one.name).join(", ")}` : ""}.`)} />`;
    return html`<${FamilyPage} key=${family.name} family=${family} />`;
  }}<//>`;
}

function Families({ families }) {
  usePageTitle("Families");
  return html`<div class="page">
    <header><h1>Families</h1><p class="sub">Kinds of aggregates whose page is made from their declaration. Budgets, channels, schedules, definitions and memory have pages of their own.</p></header>
    <section class="card"><${PlainTable}
      label="Families" rows=${families} rowKey=${(family) => family.name}
      empty=${html`<${Empty} icon="layers" title="No family here has a list" command="export LOOMLOG_FAMILIES=your.module"><p>Set LOOMLOG_FAMILIES to the modules of families and restart the services; docs/FAMILIES.md makes one step by step.</p><//>`}
      columns=${[
        { key: "name", title: "Family", cell: (family) => html`<a href=${link(`/entities/${family.name}`)}>${family.name}</a>` },
        { key: "summary", title: "What it is", cell: (family) => family.summary },
        { key: "commands", title: "Commands", cell: (family) => family.commands.map((one) => one.verb).join(", ") || html`<span class="dim">none</span>` },
      ]}
    /></section>
  </div>`;
}

function FamilyPage({ family }) {
  usePageTitle(family.name);
  const query = here.value.query;
  const tenant = query.get("tenant") ?? "";
  const prefix = query.get("prefix") ?? "";
  const id = query.get("id") ?? "";
  const list = usePages(
    async (cursor, signal) => {
      const answer = await entities.list(family.name, { prefix, tenant, limit: PAGE_SIZE, cursor }, { signal });
      return { rows: answer.items, next: answer.next };
    },
    [family.name, prefix, tenant],
  );
  const changed = () => list.reload();
  const open = (one) => link(`/entities/${family.name}`, { id: one, tenant, prefix });
  return html`<div class="page full">
    <header>
      <nav class="crumbs" aria-label="Where you are"><a href=${link("/entities")}>Families</a></nav>
      <h1>${family.name}</h1><span class="dim">${family.summary}</span><span class="grow"></span>
      <${Commands} commands=${family.commands} tenant=${tenant} onDone=${changed} />
    </header>
    <div class="bar entity-filter">
      <input type="search" aria-label="Ids that begin with" placeholder="Ids that begin with" value=${prefix} onChange=${(event) => setQuery({ prefix: event.currentTarget.value, id: "" })} />
      <${TenantField} clears=${{ id: "" }} />
      <span class="grow"></span><span class="dim number" role="status">${list.isLoading && !list.rows.length ? "" : `${formatCount(list.rows.length)}${list.isComplete ? "" : "+"} shown`}</span>
    </div>
    <div class=${id ? "entity-split" : "entity-list"}>
      ${list.error
        ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`
        : html`<${Table}
            label=${`Aggregates of ${family.name}`} rows=${list.rows} rowKey=${(row) => `${row.tenant_id}/${row.id}`} href=${(row) => open(row.id)} onEnd=${list.more} isComplete=${list.isComplete} isLoading=${list.isLoading}
            rowClass=${(row) => (row.id === id ? "active" : "")}
            empty=${html`<${Empty} icon="inbox" title=${prefix ? "No id begins with this" : `There is none of ${family.name} yet`} command=${`loomlog ${family.name} ls`}><p>${family.commands.length ? "A command makes the first one." : "They are made by what happens in runs, and cannot be made by hand."}</p><//>`}
            columns=${[
              { key: "id", title: "Id", width: "minmax(9rem, 1.4fr)", cell: (row) => html`<a href=${open(row.id)} title=${row.id}><bdi>${row.id}</bdi></a>` },
              { key: "state", title: "State", width: "minmax(10rem, 2fr)", hidden: Boolean(id), cell: (row) => html`<code class="soft"><bdi>${printJson(row.state).slice(0, SUMMARY_MAX)}</bdi></code>` },
              { key: "quarantine", title: "", width: "6.5rem", hidden: !list.rows.some((row) => row.quarantine), cell: (row) => (row.quarantine ? html`<${Chip} tone="bad" icon="octagon-x" title=${row.quarantine}>held<//>` : null) },
              { key: "changed", title: "Changed", width: "8rem", align: "right", cell: (row) => html`<${Time} at=${row.updated_at} relative />` },
            ]}
          />`}
      ${id ? html`<${One} key=${`${tenant}/${id}`} family=${family} id=${id} tenant=${tenant} onDone=${changed} />` : null}
    </div>
  </div>`;
}

/** Buttons of the commands that the caller may give. */
function Commands({ commands, tenant, id = "", onDone, small = false }) {
  const [asked, setAsked] = useState(/** @type {any} */ (null));
  const given = commands.filter((one) => may(one.scope));
  return html`${given.map((one) => html`<${Button} key=${one.verb} small=${small} title=${one.summary} onClick=${() => setAsked(one)}>${one.verb.replaceAll("_", " ")}<//>`)}
    ${asked ? html`<${CommandDialog} command=${asked} tenant=${tenant} id=${id} onDone=${onDone} onClose=${() => setAsked(null)} />` : null}`;
}

function One({ family, id, tenant, onDone }) {
  const asked = here.value.query.get("question") ?? "";
  const row = useResource((signal) => entities.show(family.name, { id, tenant }, { signal }), [family.name, id, tenant]);
  const question = family.questions.find((one) => one.verb === asked);
  const done = () => (row.reload(), onDone());
  return html`<section class="card entity" aria-label=${id}>
    <header><h2><bdi>${id}</bdi> <${CopyButton} text=${id} label="Copy the id" /></h2><${Commands} commands=${family.commands} tenant=${tenant} id=${id} onDone=${done} small /><${Button} kind="quiet" icon="x" label="Close" onClick=${() => setQuery({ id: "", question: "" })} /></header>
    <div class="inside">
      ${family.questions.length ? html`<${Tabs} label=${`Of ${id}`} tabs=${[{ key: "", title: "state" }, ...family.questions.map((one) => ({ key: one.verb, title: one.verb.replaceAll("_", " ") }))]} selected=${question ? asked : ""} onSelect=${(key) => setQuery({ question: key })} />` : null}
      <div class=${family.questions.length ? "version-pane" : ""}>${question
        ? html`<${Answer} key=${question.verb} question=${question} id=${id} tenant=${tenant} />`
        : html`<${Resource} of=${row}>${(one) => html`
            ${one.quarantine ? html`<p class="note bad">Nothing is decided in it: ${one.quarantine}</p>` : null}
            <dl class="facts about"><dt>Tenant</dt><dd>${one.tenant_id || html`<span class="dim">of the installation</span>`}</dd><dt>Made</dt><dd><${Time} at=${one.created_at} /></dd><dt>Changed</dt><dd><${Time} at=${one.updated_at} /></dd></dl>
            <h3>State</h3><${Json} value=${one.state} open=${3} label="State" />
          `}<//>`}</div>
    </div>
  </section>`;
}

function Answer({ question, id, tenant }) {
  const [draft, setDraft] = useState(/** @type {Record<string, string>} */ ({}));
  const [sent, setSent] = useState(/** @type {Record<string, string> | null} */ (question.isRequired ? null : {}));
  const answer = useResource((signal) => (sent ? entities.question(question.path, { ...sent, id, tenant }, { signal }) : Promise.resolve(null)), [question.path, id, tenant, printJson(sent)]);
  return html`<div class="stack">
    <p class="dim">${question.summary}</p>
    ${question.parameters.length
      ? html`<form class="bar" onSubmit=${(event) => (event.preventDefault(), setSent(draft))}>${question.parameters.map((name) => html`<${Field} key=${name} label=${name.replaceAll("_", " ")} inline value=${draft[name] ?? ""} onInput=${(value) => setDraft({ ...draft, [name]: value })} />`)}<${Button} type="submit">Ask<//></form>`
      : null}
    <${Resource} of=${answer}>${(value) => (value === null ? null : html`<${Json} value=${value} open=${3} label=${question.verb} />`)}<//>
  </div>`;
}
