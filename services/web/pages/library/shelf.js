// A list of the definitions of one kind, beside the kinds with their numbers.
import { html } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { usePageTitle } from "../../frame.js";
import { usePages, useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { may } from "../../session.js";
import { definitionPath } from "./kinds.js";
import { Shelves } from "./shelves.js";

const PAGE_SIZE = 500;
const SHOWN = { "": {}, active: { active: "true" }, idle: { active: "false" }, retired: { retired: "true" } };
const SOURCES = {
  file: ["info", "file", "Of a configuration file"],
  tenant: ["", "made here", "A version of this tenant"],
  shared: ["", "shared", "A version that all tenants share"],
};

/** Where a definition comes from. @param {{source: string, hasFile?: boolean}} properties */
export function Source({ source, hasFile = false }) {
  const [tone, word, title] = SOURCES[source] ?? ["", source, ""];
  return html`<${Chip} tone=${tone} title=${title + (hasFile && source !== "file" ? "; it stands in front of the one of a file" : "")}>${word}${hasFile && source !== "file" ? " over file" : ""}<//>`;
}

/** Callers without substrate:tenant see names and files, which other routes give. @returns {Promise<any[]>} */
async function readNames(kind, tenant, signal) {
  if (kind.shelf) {
    const { entries } = await library.shelf(kind.shelf, { tenant }, { signal });
    return entries.map((entry) => ({
      ...entry,
      source: entry.active_def_id || !entry.in_static ? "tenant" : "file",
      static_def_id: entry.in_static ? "file" : null,
      description: entry.static_definition?.description ?? null,
      active_version: null,
    }));
  }
  const { names } = await library.names(kind.kind, { tenant }, { signal });
  return names.map((entry) => ({ ...entry, source: entry.tenant_id ? "tenant" : "shared", description: null, active_version: null }));
}

/** @param {{kind: import("./kinds.js").Kind}} properties */
export function ShelfPage({ kind }) {
  usePageTitle(kind.many);
  const query = here.value.query;
  const tenant = query.get("tenant") ?? "";
  const shown = query.get("show") ?? "";
  const text = query.get("q") ?? "";
  const mayRead = may("substrate:tenant");
  const list = usePages(
    /** @returns {Promise<{rows: any[], next: string | null}>} */
    async (cursor, signal) => {
      if (!mayRead) return { rows: await readNames(kind, tenant, signal), next: null };
      const answer = await library.list({ kind: kind.kind, tenant, limit: PAGE_SIZE, cursor, ...(SHOWN[shown] ?? {}) }, { signal });
      return { rows: answer.definitions, next: answer.next };
    },
    [kind.kind, tenant, shown, mayRead],
  );
  // Who made something active is in the answer about a moment, of which now is one.
  const changes = useResource(
    (signal) => (mayRead ? library.at({ time: new Date().toISOString(), kind: kind.kind, tenant }, { signal }).catch(() => null) : Promise.resolve(null)),
    [kind.kind, tenant, mayRead],
  );
  const by = new Map((changes.data?.definitions ?? []).map((one) => [one.active_def_id, one]));
  const wanted = text.trim().toLowerCase();
  const rows = wanted ? list.rows.filter((row) => `${row.name} ${row.description ?? ""}`.toLowerCase().includes(wanted)) : list.rows;
  const path = (row) => link(definitionPath(kind.kind, row.name), { tenant });

  return html`<div class="page full">
    <header>
      <h1>${kind.many}</h1>
      <span class="dim">${kind.what}</span>
      <span class="grow"></span>
      ${mayRead
        ? html`<${Button} icon="rewind" href=${link("/library/at", { tenant, kind: kind.kind })}>As of a time<//>
            <${Button} icon="layers" href=${link("/library/apply", { tenant })}>Apply several<//>
            <${Button} kind="primary" icon="plus" href=${link(`/library/create/${kind.kind}`, { tenant })}>New ${kind.one}<//>`
        : null}
    </header>
    <div class="library">
      <${Shelves} current=${kind.kind} tenant=${tenant} />
      <section aria-label=${kind.many}>
        <div class="bar">
          <input class="search" type="search" aria-label=${`Search ${kind.many.toLowerCase()}`} placeholder="Search name or description" value=${text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
          ${mayRead
            ? html`<select aria-label="Which are shown" value=${shown} onChange=${(event) => setQuery({ show: event.currentTarget.value })}>
                <option value="">all</option><option value="active">with an active version</option><option value="idle">without an active version</option><option value="retired">with a retired version</option>
              </select>`
            : null}
          <${TenantField} list=${["_shared"]} />
          <span class="grow"></span>
          <span class="dim number" role="status">${list.isLoading && !rows.length ? "" : `${formatCount(rows.length)}${list.isComplete ? "" : "+"} shown`}</span>
        </div>
        ${list.error
          ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`
          : html`<${Table}
              label=${kind.many}
              rows=${rows}
              rowKey=${(row) => `${row.tenant_id ?? ""}/${row.name}`}
              href=${path}
              onEnd=${list.more}
              isComplete=${list.isComplete}
              isLoading=${list.isLoading}
              empty=${html`<${Nothing} kind=${kind} isFiltered=${Boolean(wanted || shown)} mayWrite=${mayRead} tenant=${tenant} />`}
              columns=${columns(path, by, mayRead)}
            />`}
      </section>
    </div>
  </div>`;
}

function Nothing({ kind, isFiltered, mayWrite, tenant }) {
  if (isFiltered) {
    return html`<${Empty} icon="search" title=${`No ${kind.one} fits this search`}><p class="actions"><${Button} onClick=${() => setQuery({ q: "", show: "" })}>Show all<//></p><//>`;
  }
  return html`<${Empty} icon=${kind.icon} title=${`There is no ${kind.one} yet`} command=${mayWrite ? `loomlog defs create NAME --kind ${kind.kind} --file definition.yaml` : undefined}>
    <p>${kind.what} ${mayWrite ? "Make one here, with the command line, or in a configuration file." : "An operator makes them."}</p>
    ${mayWrite ? html`<p><${Button} icon="plus" href=${link(`/library/create/${kind.kind}`, { tenant })}>New ${kind.one}<//></p>` : null}
  <//>`;
}

/** @returns {import("../../components/table.js").Column<any>[]} */
function columns(path, by, isFull) {
  return [
    { key: "name", title: "Name", width: "minmax(11rem, 1.4fr)", cell: (row) => html`<a href=${path(row)} title=${row.name}><bdi>${row.name}</bdi></a>` },
    { key: "source", title: "Source", width: "7.25rem", cell: (row) => html`<${Source} source=${row.source} hasFile=${Boolean(row.static_def_id)} />` },
    { key: "active", title: "Active", width: "8.25rem", cell: (row) => html`${active(row)}${row.version_count > 1 ? html` <small class="dim" title=${`${row.live_version_count} of ${row.version_count} versions are not retired`}>of ${formatCount(row.version_count)}</small>` : null}` },
    { key: "description", title: "Description", width: "minmax(7rem, 2fr)", cell: (row) => html`<bdi class="soft" title=${row.description ?? ""}>${(row.description ?? "").slice(0, 300)}</bdi>` },
    { key: "changed", title: "Changed", width: "6.25rem", align: "right", cell: (row) => html`<${Time} at=${row.last_updated} relative />` },
    { key: "by", title: "By", width: "6rem", hidden: !isFull, cell: (row) => author(row, by.get(row.active_def_id)) },
  ];
}

function active(row) {
  if (row.active_version) return html`<${Chip} tone="good" title=${row.active_def_id}>version ${row.active_version}<//>`;
  if (row.active_def_id) return html`<${Chip} tone="good" title=${row.active_def_id}>a version<//>`;
  if (row.source === "file" || row.static_def_id) return html`<span class="soft">the file</span>`;
  return html`<span class="warn" title="Runs that name it are refused until a version is made active">none</span>`;
}

function author(row, change) {
  const who = change?.promoted_by || row.made_by_agent || "";
  return who ? html`<bdi class="soft" title=${change?.why ? `made active: ${change.why}` : row.made_by_agent ? `first made by the agent ${row.made_by_agent}` : "made the active version active"}>${who}</bdi>` : html`<span class="dim">–</span>`;
}
