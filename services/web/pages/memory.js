// Memory: scopes at the left, and of one scope its entries, facts, search, SQL database, vectors and changes.
import { html, useState } from "../ui.js";
import { ApiError, memory } from "../api.js";
import { Button, Tabs } from "../components/controls.js";
import { Empty, ErrorState } from "../components/states.js";
import { TenantField } from "../components/tenant.js";
import { formatBytes, formatCount } from "../components/time.js";
import { usePageTitle } from "../frame.js";
import { useResource } from "../resource.js";
import { here, link, navigate, setQuery } from "../router.js";
import { may } from "../session.js";
import { ChangeFeed } from "./memory/changes.js";
import { DropDialog, EntryDialog } from "./memory/dialogs.js";
import { Entries } from "./memory/entries.js";
import { EntryView } from "./memory/entry.js";
import { Facts } from "./memory/facts.js";
import { SCOPES, nameOf, pathOf, placeOfPath, share } from "./memory/model.js";
import { Search } from "./memory/search.js";
import { SqlConsole } from "./memory/sql.js";
import { ScopeTree } from "./memory/tree.js";
import { Vectors } from "./memory/vectors.js";

const EVERY_MS = 10_000;

/** @param {{params: {rest?: string}}} properties rest: scope/id; an id may have slashes */
export default function Memory({ params }) {
  const place = placeOfPath(params.rest ?? "");
  const tenant = here.value.query.get("tenant") ?? "";
  const key = here.value.query.get("key");
  const [round, setRound] = useState(0);
  const [asked, setAsked] = useState("");
  usePageTitle(place ? `${key ? `${key} · ` : ""}${nameOf(place.scope, place.id)} · Memory` : "Memory");
  if (place && !SCOPES[place.scope]) return html`<${ErrorState} isPage error=${new ApiError(404, "not_found", `There is no scope ${place.scope}: expected ${Object.keys(SCOPES).join(", ")}.`)} />`;
  const isChosen = Boolean(place && (place.scope === "tenant" || place.id));
  const changed = () => setRound(round + 1);
  return html`<div class="page full memory">
    <header>
      <h1>Memory</h1>
      <span class="dim wide-only">What agents, users and the tenant remember.</span>
      <span class="grow"></span>
      <${TenantField} clears=${{ key: "" }} />
      ${place?.scope === "run" || !may("memory:write") ? null : html`<${Button} kind="primary" icon="plus" onClick=${() => setAsked("new")}>New entry<//>`}
    </header>
    <div class="memory-split">
      <${ScopeTree} chosen=${place} tenant=${tenant} round=${round} isFolded=${isChosen} />
      <div class="memory-main">
        ${isChosen && place ? html`<${ScopeHead} key=${`${place.scope}/${place.id}`} place=${place} tenant=${tenant} round=${round} onDrop=${() => setAsked("drop")} />` : null}
        <${Panes} place=${isChosen ? place : null} tenant=${tenant} round=${round} changed=${changed} entryKey=${key} />
      </div>
    </div>
    ${asked === "new" ? html`<${EntryDialog} place=${place} tenant=${tenant} onClose=${() => setAsked("")} onDone=${(made) => (changed(), navigate(link(pathOf(made.scope, made.id), { tenant, key: made.key }).slice("/ui".length)))} />` : null}
    ${asked === "drop" && place ? html`<${DropDialog} place=${place} tenant=${tenant} onClose=${() => setAsked("")} onDone=${() => (changed(), setQuery({ key: "" }))} />` : null}
  </div>`;
}

function ScopeHead({ place, tenant, round, onDrop }) {
  const usage = useResource((signal) => (place.scope === "run" ? Promise.resolve(null) : memory.usage({ scope: place.scope, scope_id: place.id, tenant }, { signal })), [place.scope, place.id, tenant, round], { everyMs: EVERY_MS });
  const of = usage.data?.usage;
  const most = usage.data?.keys_max ?? 0;
  const part = of ? share(of) : null;
  return html`<div class="memory-head">
    <h2><bdi>${place.scope === "tenant" ? "The tenant" : place.id}</bdi> <small class="dim">${place.scope === "tenant" ? "" : place.scope}</small></h2>
    ${of
      ? html`<span class="number dim" title=${`at most ${formatCount(most)} keys`}>${formatCount(of.keys)} ${of.keys === 1 ? "key" : "keys"}</span>
          <span class="memory-quota" title=${of.quota_bytes > 0 ? `${formatCount(of.bytes)} of ${formatCount(of.quota_bytes)} bytes` : `${formatCount(of.bytes)} bytes; there is no quota`}>
            ${part === null ? null : html`<progress max="100" value=${part} aria-label="Part of the quota that is used"></progress>`}
            <span class=${`number ${part !== null && part >= 80 ? "warn" : "dim"}`}>${formatBytes(of.bytes)}${part === null ? "" : ` of ${formatBytes(of.quota_bytes)}`}</span>
          </span>`
      : null}
    <span class="grow"></span>
    ${of?.keys && may("substrate:tenant") ? html`<${Button} small kind="danger" icon="trash-2" onClick=${onDrop}>Drop the scope<//>` : null}
    ${usage.error ? html`<${ErrorState} error=${usage.error} onRetry=${usage.reload} compact />` : null}
  </div>`;
}

/** The views; those of one scope say so while none is chosen. */
function Panes({ place, tenant, round, changed, entryKey }) {
  const tabs = [
    { key: "entries", title: "Entries", icon: "list" },
    { key: "facts", title: "Facts", icon: "bookmark" },
    { key: "search", title: "Search", icon: "search" },
    { key: "sql", title: "SQL", icon: "terminal" },
    { key: "vectors", title: "Vectors", icon: "layers" },
    ...(may("substrate:tenant") ? [{ key: "changes", title: "Changes", icon: "activity" }] : []),
  ].filter((tab) => place?.scope !== "run" || tab.key === "sql");
  const wanted = here.value.query.get("tab") ?? "";
  const selected = tabs.some((tab) => tab.key === wanted) ? wanted : place ? tabs[0].key : tabs.some((tab) => tab.key === "changes") ? "changes" : tabs[0].key;
  const at = place ? `${place.scope}/${place.id}` : "";
  const missing = html`<${Empty} icon="database" title="Choose a scope" command="loomlog memory ls"><p>Memory is kept for each agent, each user and the tenant. Choose one at the left.</p><//>`;
  const panes = {
    entries: () => (entryKey ? html`<${EntryView} key=${`${at}/${entryKey}`} place=${place} entryKey=${entryKey} tenant=${tenant} onChanged=${changed} />` : html`<${Entries} key=${at} place=${place} tenant=${tenant} round=${round} />`),
    facts: () => html`<${Facts} key=${at} place=${place} tenant=${tenant} round=${round} />`,
    search: () => html`<${Search} key=${at} place=${place} tenant=${tenant} />`,
    sql: () => html`<${SqlConsole} key=${at} place=${place} tenant=${tenant} />`,
  };
  return html`
    <${Tabs} label="Memory" selected=${selected} onSelect=${(tab) => setQuery({ tab, key: "" }, { replace: false })} tabs=${tabs} />
    <div class="memory-pane" role="tabpanel" aria-labelledby=${`tab-${selected}`}>
      ${selected === "changes" ? html`<${ChangeFeed} key=${tenant} place=${place} tenant=${tenant} />` : selected === "vectors" ? html`<${Vectors} key=${at} place=${place} tenant=${tenant} />` : place ? panes[selected]() : missing}
    </div>`;
}
