// The schedules, those that fire next first.
import { html } from "../../ui.js";
import { schedules } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount, formatDuration, formatTime, now, toMs } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { me } from "../../session.js";
import { NewSchedule } from "./create.js";
import { listed, stateOf } from "./model.js";

const EVERY_MS = 5_000;
const STATES = { active: "active", paused: "paused", problem: "cannot run", template: "templates", off: "off", done: "finished", idle: "not active" };

/** The address of a schedule's page. @param {any} entry @param {Record<string, any>} [query] */
export const scheduleLink = (entry, query = {}) => link(`/schedules/${encodeURIComponent(entry.name)}`, { ...(me.value?.is_admin ? { tenant: entry.tenant_id } : {}), ...query });

/** @param {{entry: any}} properties */
export function ScheduleState({ entry }) {
  const [, tone, word, why] = stateOf(entry, now.value);
  return html`<${Chip} tone=${tone} title=${why}>${word}<//>`;
}

/** "in 3 min", and the time on hover; counts down. @param {{at: string | undefined}} properties */
export function Countdown({ at }) {
  const left = toMs(at) - now.value;
  if (Number.isNaN(left)) return html`<span class="dim">–</span>`;
  return html`<time datetime=${at} title=${`${new Date(toMs(at)).toISOString().replace("T", " ").replace("Z", "")} UTC`}>${left <= 0 ? "now" : left < 59_500 ? `in ${Math.max(1, Math.round(left / 1_000))} s` : `in ${formatDuration(left)}`}</time>`;
}

/** @param {{status?: string, why?: string}} properties */
export function LastStatus({ status, why }) {
  const tone = { completed: "good", failed: "bad", skipped: "warn" }[status ?? ""] ?? "";
  return status ? html`<${Chip} tone=${tone} title=${why}>${status}<//>` : html`<${Chip} tone="live">running<//>`;
}

export function ScheduleList() {
  const { query } = here.value;
  const tenant = query.get("tenant") ?? "";
  const filters = { text: query.get("q") ?? "", state: query.get("state") ?? "" };
  const list = useResource((signal) => schedules.list({ tenant }, { signal }), [tenant], { everyMs: EVERY_MS });
  const isAsked = query.has("new");
  const rows = listed(list.data?.entries ?? [], filters, now.value);
  const isFiltered = Boolean(filters.text || filters.state);
  const hasTenants = new Set((list.data?.entries ?? []).map((entry) => entry.tenant_id)).size > 1;
  return html`<div class="page full">
    <header>
      <h1>Schedules</h1>
      <span class="dim">Agents that are started at given times.</span>
      <span class="grow"></span>
      <${Button} icon="library" href=${link("/library/schedule", { tenant })}>Definitions<//>
      <${Button} kind="primary" icon="plus" onClick=${() => setQuery({ new: "1" })}>New schedule<//>
    </header>
    <div class="bar list-filters">
      <input class="search" type="search" aria-label="Search schedules" placeholder="Search name, agent or times" value=${filters.text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
      <select aria-label="State" value=${filters.state} onChange=${(event) => setQuery({ state: event.currentTarget.value })}>
        <option value="">any state</option>${Object.entries(STATES).map(([key, word]) => html`<option value=${key} key=${key}>${word}</option>`)}
      </select>
      <${TenantField} placeholder="all" />
      <span class="grow"></span>
      <span class="dim number" role="status">${list.data ? `${formatCount(rows.length)} shown` : ""}</span>
    </div>
    <${Resource} of=${list}>${() => html`<${Table}
      label="Schedules"
      rows=${rows}
      rowKey=${(entry) => `${entry.tenant_id}/${entry.name}`}
      href=${scheduleLink}
      columns=${columns(hasTenants)}
      empty=${isFiltered
        ? html`<${Empty} icon="search" title="No schedule fits these filters"><p class="actions"><${Button} onClick=${() => setQuery({ q: "", state: "" })}>Show all<//></p><//>`
        : html`<${Empty} icon="calendar-clock" title="There is no schedule yet" command="loomlog defs create nightly --kind schedule --file schedule.yaml"><p>Make one here, with the command line, or under <code>scheduled_runs:</code> in a configuration file.</p><//>`}
    />`}<//>
    ${isAsked ? html`<${NewSchedule} tenant=${tenant} onClose=${() => setQuery({ new: "" })} onDone=${(name) => navigate(`/schedules/${encodeURIComponent(name)}${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`)} />` : null}
  </div>`;
}

/** @returns {import("../../components/table.js").Column<any>[]} */
function columns(hasTenants) {
  return [
    { key: "name", title: "Name", width: "minmax(11rem, 1.5fr)", cell: (entry) => html`<a href=${scheduleLink(entry)} title=${entry.name}><bdi>${entry.name}</bdi></a>` },
    { key: "state", title: "State", width: "6rem", cell: (entry) => html`<${ScheduleState} entry=${entry} />` },
    { key: "next", title: "Next", width: "7rem", align: "right", cell: (entry) => (stateOf(entry, now.value)[0] === "paused" ? html`<span class="dim">–</span>` : html`<${Countdown} at=${entry.state?.next_run_at} />`) },
    { key: "at", title: "At", width: "6.5rem", align: "right", hidden: hasTenants, cell: (entry) => (entry.state?.next_run_at ? html`<span class="soft">${formatTime(entry.state.next_run_at)}</span>` : html`<span class="dim">–</span>`) },
    { key: "times", title: "Times", width: "minmax(7.5rem, .8fr)", cell: (entry) => (entry.state?.times ? html`<code>${entry.state.times}</code> <small class="dim">${entry.state.times.startsWith("@every") ? "" : entry.state.timezone}</small>` : html`<span class="dim">–</span>`) },
    { key: "agent", title: "Agent", width: "minmax(5.5rem, .8fr)", cell: (entry) => html`<bdi>${entry.state?.agent ?? ""}</bdi>` },
    { key: "last", title: "Last run", width: "6.5rem", cell: (entry) => (entry.state?.last_run_id ? html`<a href=${link(`/runs/${entry.state.last_run_id}`)}><${LastStatus} status=${entry.state.last_status} why=${entry.state.last_error} /></a>` : html`<span class="dim">none yet</span>`) },
    { key: "when", title: "Began", width: "6.5rem", align: "right", cell: (entry) => html`<${Time} at=${entry.state?.last_run_at} relative />` },
    { key: "fires", title: "Fires", width: "5rem", align: "right", cell: (entry) => (entry.state ? html`<span title=${entry.state.max_fires ? `of ${entry.state.max_fires}` : "without a limit"}>${formatCount(entry.state.fires)}${entry.state.max_fires ? html`<small class="dim">/${formatCount(entry.state.max_fires)}</small>` : null}</span>` : html`<span class="dim">–</span>`) },
    { key: "tenant", title: "Tenant", width: "6rem", hidden: !hasTenants, cell: (entry) => html`<bdi class="soft">${entry.tenant_id || "shared"}</bdi>` },
  ];
}
