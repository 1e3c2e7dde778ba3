// One definition: its versions and how they follow from each other, and the version that is looked at.
import { html, useEffect, useRef } from "../../ui.js";
import { ApiError, library } from "../../api.js";
import { Button, Chip, Id, Tabs } from "../../components/controls.js";
import { Graph } from "../../components/graph.js";
import { Icon } from "../../components/icon.js";
import { Json } from "../../components/json.js";
import { RecordLink, RecordsLink } from "../../components/record_link.js";
import { Empty, ErrorState, Forbidden, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatAgo, formatCount, formatTime, now, toMs } from "../../components/time.js";
import { usePageTitle } from "../../frame.js";
import { useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { may, me } from "../../session.js";
import { NameActions, VersionActions, forkPath } from "./actions.js";
import { Changes } from "./changes.js";
import { Content } from "./content.js";
import { Judgements } from "./judgements.js";
import { definitionPath, oneOf } from "./kinds.js";
import { allVersions, lineageNodes, missingIds, versionState, versionTitle } from "./lineage.js";
import { Runs } from "./runs.js";
import { Source } from "./shelf.js";

/** Lineages that are read besides the tenant's own versions: a name has at most two lines, its own and the shared one. */
const LINEAGES_MAX = 3;
const LINEAGE_DEPTH = 100;

async function readDefinition(kind, name, tenant, signal) {
  const [list, listed] = await Promise.all([
    library.list({ kind: kind.kind, name, tenant }, { signal }),
    /** @type {Promise<Api.DefinitionVersions>} */ (library.operate(kind.kind, { op: "list", name }, { tenant }, { signal })),
  ]);
  const own = /** @type {Api.DefinitionVersions} */ (listed);
  const entry = list.definitions[0] ?? null;
  if (!entry && !own.versions.length) return null;
  // What is named by a version and is none of the tenant's own is of the definitions that all tenants share.
  const active = entry?.source === "file" ? entry.static_def_id : (entry?.active_def_id ?? null);
  const shared = [];
  for (let round = 0; round < LINEAGES_MAX; round += 1) {
    const known = allVersions(own.versions, shared, entry?.static_def_id ?? null);
    const [missing] = missingIds(known, active);
    if (!missing) break;
    const lineage = /** @type {any} */ (await library.lineage(missing, { tenant, depth: LINEAGE_DEPTH }, { signal }));
    const answer = { ...lineage, asked: missing };
    shared.push(answer);
    if (![answer.root, ...answer.ancestors, ...answer.descendants].some((one) => one.def_id === missing)) {
      answer.descendants = [...answer.descendants, await library.version(missing, { tenant }, { signal })];
    }
  }
  return { entry, active, versions: allVersions(own.versions, shared, entry?.static_def_id ?? null) };
}

/** @param {{kind: import("./kinds.js").Kind, name: string}} properties */
export function DefinitionPage({ kind, name }) {
  usePageTitle(`${name} · ${kind.one}`);
  const tenant = here.value.query.get("tenant") ?? "";
  const mayRead = may("substrate:tenant");
  const definition = useResource((signal) => /** @type {Promise<any>} */ (mayRead ? readDefinition(kind, name, tenant, signal) : readFile(kind, name, tenant, signal)), [kind.kind, name, tenant, mayRead]);
  return html`<div class="page">
    <${Resource} of=${definition}>${(data) => {
      if (!data) return html`<${Missing} kind=${kind} name=${name} tenant=${tenant} mayWrite=${mayRead} />`;
      return mayRead ? html`<${Full} kind=${kind} name=${name} tenant=${tenant} data=${data} reload=${definition.reload} />` : html`<${FileOnly} kind=${kind} name=${name} entry=${data} />`;
    }}<//>
  </div>`;
}

function Missing({ kind, name, tenant, mayWrite }) {
  return html`<${Empty} icon=${kind.icon} title=${`There is no ${kind.one} ${name}`} command=${`loomlog defs ls --kind ${kind.kind}`}>
    <p class="actions"><${Button} href=${link(`/library/${kind.kind}`, { tenant })}>All ${kind.many}<//>${mayWrite ? html`<${Button} kind="primary" icon="plus" href=${link(`/library/create/${kind.kind}`, { name, tenant })}>Create it<//>` : null}</p>
  <//>`;
}

export function Crumbs({ kind, tenant }) {
  return html`<nav class="crumbs" aria-label="Where you are"><a href=${link("/library", { tenant })}>Library</a><${Icon} name="chevron-right" size=${13} /><a href=${link(`/library/${kind.kind}`, { tenant })}>${kind.many}</a></nav>`;
}

function Full({ kind, name, tenant, data, reload }) {
  const { entry, active, versions } = data;
  const query = here.value.query;
  const chosen = query.get("v") ?? "";
  const selected = versions.find((one) => one.def_id === chosen) ?? versions.find((one) => one.def_id === active) ?? versions[0];
  const path = definitionPath(kind.kind, name);
  const href = (version) => link(path, { v: version.def_id, tenant, view: query.get("view"), as: query.get("as") });
  const when = (version) => [version.created_at ? formatTime(toMs(version.created_at)) : "", version.description].filter(Boolean).join(" · ");
  const activeVersion = versions.find((one) => one.def_id === active);
  return html`
    <header>
      <${Crumbs} kind=${kind} tenant=${tenant} />
      <h1><bdi>${name}</bdi></h1>
      ${entry ? html`<${Source} source=${entry.source} hasFile=${Boolean(entry.static_def_id)} />` : null}
      ${activeVersion ? html`<${Chip} tone="good" icon="circle-check">${activeVersion.isFile ? "the file" : versionTitle(activeVersion)} is active<//>` : html`<${Chip} tone="warn" icon="circle-alert" title="What names it is refused until a version is made active">none is active<//>`}
      ${entry?.judgements?.count ? html`<${Chip} title="Mean of the judgements of its runs">judged ${entry.judgements.mean.toFixed(2)} by ${formatCount(entry.judgements.count)}<//>` : null}
      <span class="grow"></span>
      ${kind.page ? html`<${Button} icon=${kind.icon} href=${link(kind.page(name))}>${kind.one === "schedule" ? "Fires" : "Deliveries"}<//>` : null}
      ${kind.kind === "mcpserver" && active && entry && may("substrate:tenant") ? html`<${Button} icon="lock" title="For a server that asks for authorization (OAuth): its page opens" onClick=${async () => window.location.assign((await library.loginToMcpServer(name, { tenant })).url)}>Grant access<//>` : null}
      ${kind.kind === "agent" && active && may("runs:create") && ["", "_shared", me.value?.tenant_id].includes(tenant) ? html`<${Button} icon="play" href=${link("/start", { agent: name })}>Start a run<//>` : null}
      ${entry ? html`<${NameActions} kind=${kind} name=${name} entry=${entry} tenant=${tenant} onDone=${reload} onDeleted=${() => navigate(`/library/${kind.kind}${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`)} />` : null}
    </header>
    <${Notes} kind=${kind} name=${name} entry=${entry} tenant=${tenant} />
    <section class="card" aria-label="Versions">
      <header><h2>Versions</h2><span class="dim number">${formatCount(versions.filter((one) => !one.isFile).length)}</span><a href=${link("/library/at", { kind: kind.kind, name, tenant })}>As of a time</a></header>
      <${Lineage} nodes=${lineageNodes(versions, active, href, when)} current=${selected.def_id} name=${name} />
    </section>
    <${VersionPane} key=${selected.def_id} kind=${kind} selected=${selected} versions=${versions} active=${active} tenant=${tenant} href=${href} reload=${reload} />
  `;
}

/** The drawing, scrolled to the version that is looked at. */
function Lineage({ nodes, current, name }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const graph = box.current?.querySelector(".graph");
    const node = box.current?.querySelector("g.current");
    if (!graph || !node) return;
    const outer = graph.getBoundingClientRect();
    const inner = node.getBoundingClientRect();
    graph.scrollBy({ left: inner.right - outer.right + 24 > 0 ? inner.right - outer.right + 24 : Math.min(0, inner.left - outer.left - 24), top: inner.bottom > outer.bottom ? inner.bottom - outer.bottom + 24 : Math.min(0, inner.top - outer.top - 24) });
  }, [current, nodes.length]);
  return html`<div class="lineage" ref=${box}><${Graph} nodes=${nodes} current=${current} label=${`Versions of ${name} and what they were made from`} /></div>`;
}

/** @param {{kind: any, name: any, entry: Api.DefinitionEntry | null, tenant: any}} properties */
function Notes({ kind, name, entry, tenant }) {
  if (!entry) return null;
  return html`
    ${entry.source === "file"
      ? html`<p class="note">This ${kind.one} is in a configuration file. Change it there and reload the services; or <a href=${forkPath(kind, name, "", tenant)}>edit it as a new version</a>, which is used instead of the file once it is active.</p>`
      : entry.static_def_id
        ? html`<p class="note">A configuration file has ${oneOf(kind)} of this name too. The version that is active here is used instead of it; when that is retired, the file counts again.</p>`
        : null}
    ${entry.source === "shared" && !me.value?.is_admin ? html`<p class="note">All tenants share this ${kind.one}. <a href=${forkPath(kind, name, entry.active_def_id ?? "", tenant)}>Edit it as a new version</a> to have one of your own, which is used instead.</p>` : null}
    ${entry.source === "shared" && me.value?.is_admin && tenant !== "_shared" && me.value.tenant_id ? html`<p class="note">All tenants share this ${kind.one}. A new version from here is one of ${tenant || me.value.tenant_id}; <a href=${link(definitionPath(kind.kind, name), { tenant: "_shared" })}>change it for all tenants</a> instead.</p>` : null}
    ${entry.static_differs ? html`<p class="note warn">The files of the processes say different things about this name: bring them to the same state and restart. <code>loomlog doctor</code> names the processes.</p>` : null}
  `;
}

function VersionPane({ kind, selected, versions, active, tenant, href, reload }) {
  const view = here.value.query.get("view") || "content";
  const version = useResource((signal) => library.version(selected.def_id, { tenant }, { signal }), [selected.def_id, tenant]);
  const { word, tone } = versionState({ ...selected, ...(version.data ?? {}) }, active);
  const done = () => (version.reload(), reload());
  const hasRuns = kind.hasRuns && !selected.isFile;
  const tabs = [
    { key: "content", title: "Content" },
    { key: "changes", title: "Changes" },
    ...(hasRuns ? [{ key: "runs", title: "Runs" }] : []),
    ...(kind.hasRuns ? [{ key: "judgements", title: "Judgements", count: version.data?.judgements?.count || undefined }] : []),
    { key: "versions", title: "All versions", count: versions.filter((one) => !one.isFile).length },
    { key: "json", title: "JSON" },
  ];
  const shown = tabs.some((tab) => tab.key === view) ? view : "content";
  return html`<section class="card" aria-label=${versionTitle(selected)}>
    <header>
      <h2>${selected.isFile ? "What the file says" : versionTitle(selected)[0].toUpperCase() + versionTitle(selected).slice(1)}</h2>
      ${word ? html`<${Chip} tone=${tone}>${word}<//>` : null}
      ${version.data ? html`<${VersionActions} kind=${kind} version=${version.data} active=${active} tenant=${tenant} isShared=${Boolean(selected.isShared)} onDone=${done} />` : null}
    </header>
    <div class="inside">
      <${Resource} of=${version}>${(data) => html`
        <${About} version=${data} versions=${versions} href=${href} />
        <${Tabs} label="Of this version" tabs=${tabs} selected=${shown} onSelect=${(key) => setQuery({ view: key === "content" ? "" : key })} />
        <div class="version-pane" role="tabpanel" aria-labelledby=${`tab-${shown}`}>
          ${shown === "content" ? html`<${Content} kind=${kind} definition=${data.definition} tenant=${tenant} />` : null}
          ${shown === "changes" ? html`<${Changes} version=${data} versions=${versions} active=${active} tenant=${tenant} />` : null}
          ${shown === "runs" ? html`<${Runs} id=${data.def_id} name=${data.name} tenant=${tenant} />` : null}
          ${shown === "judgements" ? html`<${Judgements} id=${data.def_id} tenant=${tenant} />` : null}
          ${shown === "versions" ? html`<${VersionTable} versions=${versions} active=${active} selected=${selected} href=${href} />` : null}
          ${shown === "json" ? html`<${Json} value=${data} open=${3} label="The version as JSON" />` : null}
        </div>
      `}<//>
    </div>
  </section>`;
}

function About({ version, versions, href }) {
  const parent = versions.find((one) => one.def_id === version.parent_def_id);
  const isFile = version.version === 0;
  const { count, mean, min, max } = version.judgements ?? {};
  return html`<dl class="facts about">
    <dt>Id</dt><dd><${Id} id=${version.def_id} short=${0} /></dd>
    ${isFile ? null : html`<dt>Made</dt><dd><${Time} at=${version.created_at} /> <span class="dim">(${formatAgo(now.value - toMs(version.created_at))})</span> by <bdi>${version.created_by || version.created_by_agent_id || "the configuration files"}</bdi>${version.created_by_run_id ? html` in <a href=${link(`/runs/${encodeURIComponent(version.created_by_run_id)}`)}>a run</a>` : null}</dd>`}
    ${version.description ? html`<dt>Why</dt><dd><bdi>${version.description}</bdi></dd>` : null}
    ${version.parent_def_id ? html`<dt>Made from</dt><dd>${parent ? html`<a href=${href(parent)}>${versionTitle(parent)}</a>` : html`<${Id} id=${version.parent_def_id} href=${link(`/library/version/${version.parent_def_id}`)} />`}</dd>` : null}
    ${version.expires_at ? html`<dt>Retired by itself</dt><dd><${Time} at=${version.expires_at} /></dd>` : null}
    ${version.position ? html`<dt>Record</dt><dd><${RecordLink} position=${version.position} label=${version.position} />${may("substrate:admin") ? html` <span class="dim">·</span> <${RecordsLink} aggregate=${`definition:${version.tenant_id}/${version.kind}/${version.name}`} label="all changes of this name" />` : null}</dd>` : null}
    ${version.content_sha256 ? html`<dt>Hash of the content</dt><dd><${Id} id=${version.content_sha256} short=${12} /></dd>` : null}
    ${count ? html`<dt>Judgements</dt><dd class="number">${mean.toFixed(2)} <span class="dim">mean of ${formatCount(count)}, from ${min.toFixed(2)} to ${max.toFixed(2)}</span></dd>` : null}
  </dl>`;
}

function VersionTable({ versions, active, selected, href }) {
  return html`<${PlainTable}
    label="All versions" rows=${versions} rowKey=${(row) => row.def_id} rowClass=${(row) => (row.def_id === selected.def_id ? "selected" : "")}
    columns=${[
      { key: "version", title: "Version", sort: (row) => (row.isShared ? 0.5 : 1) * row.version, cell: (row) => html`<a href=${href(row)}>${versionTitle(row)}</a>` },
      { key: "state", title: "State", cell: (row) => {
        const { word, tone } = versionState(row, active);
        return word ? html`<${Chip} tone=${tone}>${word}<//>` : html`<span class="dim">–</span>`;
      } },
      { key: "made", title: "Made", align: "right", sort: (row) => row.created_at ?? "", cell: (row) => html`<${Time} at=${row.created_at} />` },
      { key: "from", title: "From", cell: (row) => {
        const parent = versions.find((one) => one.def_id === row.parent_def_id);
        return parent ? html`<a href=${href(parent)}>${versionTitle(parent)}</a>` : row.bootstrapped_from_static ? "the file" : html`<span class="dim">–</span>`;
      } },
      { key: "by", title: "By", cell: (row) => html`<bdi>${row.created_by_agent_id || "–"}</bdi>` },
      { key: "why", title: "Why", cell: (row) => html`<bdi class="soft">${row.description || "–"}</bdi>` },
    ]}
  />`;
}

/** For callers who may see what files define, and not the versions. */
async function readFile(kind, name, tenant, signal) {
  if (!kind.shelf) throw new ApiError(403, "insufficient_scope", `What ${kind.many} say is shown to callers with the scope substrate:tenant.`, { scope: "substrate:tenant" });
  const { entries } = await library.shelf(kind.shelf, { tenant }, { signal });
  return entries.find((entry) => entry.name === name) ?? null;
}

/** @param {{kind: any, name: any, entry: Api.LibraryEntry}} properties */
function FileOnly({ kind, name, entry }) {
  return html`
    <header><${Crumbs} kind=${kind} tenant="" /><h1><bdi>${name}</bdi></h1><${Source} source=${entry.in_substrate ? "tenant" : "file"} hasFile=${entry.in_static} /></header>
    ${entry.static_definition
      ? html`<section class="card"><header><h2>What the file says</h2></header><div class="inside"><${Content} kind=${kind} definition=${entry.static_definition} tenant="" /></div></section>`
      : null}
    ${entry.in_substrate ? html`<${Forbidden} scope="substrate:tenant" />` : null}
    ${!entry.static_definition && !entry.in_substrate ? html`<${ErrorState} error=${new ApiError(404, "not_found", `There is no ${kind.one} ${name}.`)} />` : null}
  `;
}
