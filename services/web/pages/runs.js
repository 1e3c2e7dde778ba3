// The runs: a live list with filters in the address, counts by status, saved filters and orders to many runs.
import { html, useMemo, useRef, useState } from "../ui.js";
import { Button, Chip, Id } from "../components/controls.js";
import { Icon } from "../components/icon.js";
import { useKeys } from "../components/keys.js";
import { Empty, ErrorState } from "../components/states.js";
import { RunStatus } from "../components/status.js";
import { Table } from "../components/table.js";
import { Duration, Time, formatCount, formatMoney, formatShort } from "../components/time.js";
import { here, link, navigate, setQuery } from "../router.js";
import { may, me } from "../session.js";
import { savedFilters } from "../settings.js";
import { useNarrow } from "./runs/narrow.js";
import { BulkBar } from "./runs/bulk.js";
import { FIELDS, addressOf, commandOf, filterOf } from "./runs/filter.js";
import { FilterPanel, SavedFilters, StatusButtons, labelOf } from "./runs/filters.js";
import { useRunCounts, useRunList } from "./runs/list.js";
import { waitText } from "./runs/rows.js";

const ROW = 36;
const ROW_NARROW = 58;
const HEAD = 34;

export default function Runs() {
  const text = here.value.query.toString();
  const filter = useMemo(() => filterOf(new URLSearchParams(text)), [text]);
  const key = addressOf(filter);
  const isNarrow = useNarrow();
  const rowHeight = isNarrow ? ROW_NARROW : ROW;
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  const [selection, setSelection] = useState(/** @type {Set<string>} */ (new Set()));
  const [isPanelOpen, setPanelOpen] = useState(false);
  const list = useRunList(filter, {
    isHolding: () => selection.size > 0 || (box.current?.scrollTop ?? 0) > 4,
    viewOf: (rows) => {
      const top = box.current?.scrollTop ?? 0;
      const height = box.current?.clientHeight ?? 800;
      return rows.slice(Math.floor(top / rowHeight), Math.ceil((top + height - HEAD) / rowHeight) + 1);
    },
  });
  const counts = useRunCounts(filter, list.rows);
  const isFiltered = key !== "";
  const showStatus = (status, waits = "") => setQuery({ status, waits });
  const showHeld = () => {
    list.showHeld();
    if (box.current) box.current.scrollTop = 0;
  };
  useKeys("Runs: filters", {
    0: ["All runs", () => showStatus("")],
    1: ["Running", () => showStatus("running")],
    2: ["Completed", () => showStatus("completed")],
    3: ["Failed", () => showStatus("failed")],
    4: ["Cancelled", () => showStatus("cancelled")],
    5: ["Runs that wait for an answer", () => showStatus("", "interrupted")],
    f: ["Open the filters", () => setPanelOpen(true)],
    n: ["Show the new runs", showHeld],
    r: ["Read the list again", list.refresh],
    c: ["Remove all filters", () => navigate("/runs")],
  });
  const canOrder = may("runs:create");
  const isAdmin = me.value?.is_admin;
  const columns = isNarrow ? [{ key: "run", title: "Run", width: "minmax(0, 1fr)", cell: (row) => html`<${NarrowRow} row=${row} />` }] : wideColumns(isAdmin);
  const chosen = list.rows.filter((row) => selection.has(row.run_id));

  return html`<div class="page full runs">
    <header>
      <h1>Runs</h1>
      <${Live} state=${list.streamState} />
      <span class="grow"></span>
      ${list.held ? html`<${Button} small kind="primary" icon="arrow-up" onClick=${showHeld}>${list.isHeldFull ? `${formatCount(list.held)}+` : list.held} new ${list.held === 1 ? "run" : "runs"}<//>` : null}
      <${Button} small icon="refresh-cw" label="Read the list again" title="Read the list again (r)" onClick=${list.refresh} />
      <${Button} small icon="filter" isPressed=${isPanelOpen} title="Filters (f)" onClick=${() => setPanelOpen(!isPanelOpen)}>Filter<//>
      ${canOrder && !isNarrow ? html`<${Button} small kind="primary" icon="play" href=${link("/start")}>Start<//>` : null}
    </header>
    <div class="bar chips">
      <${StatusButtons} filter=${filter} counts=${counts} onChoose=${showStatus} />
    </div>
    ${isPanelOpen ? html`<${FilterPanel} key=${key} filter=${filter} onClose=${() => setPanelOpen(false)} />` : null}
    <${ActiveFilters} filter=${filter} />
    ${selection.size ? html`<${BulkBar} rows=${chosen} filter=${filter} onClear=${() => setSelection(new Set())} onDone=${list.refresh} />` : null}
    ${list.error && !list.rows.length
      ? html`<${ErrorState} error=${list.error} onRetry=${list.refresh} />`
      : html`${list.error ? html`<${ErrorState} error=${list.error} onRetry=${list.more} compact />` : null}
        <${Table}
          label="Runs" columns=${columns} rows=${list.rows} rowKey=${(row) => row.run_id} rowHeight=${rowHeight} boxRef=${box}
          href=${(row) => link(`/runs/${row.run_id}`)} onEnd=${list.error ? undefined : list.more} isComplete=${list.isComplete} isLoading=${list.isLoading}
          selection=${canOrder ? selection : undefined} onSelect=${setSelection} empty=${html`<${Nothing} filter=${filter} isFiltered=${isFiltered} />`}
        />`}
  </div>`;
}

function Live({ state }) {
  if (state === "open") return html`<${Chip} tone="live" title="Changes arrive as they happen"><i class="pulse" aria-hidden="true"></i>live<//>`;
  if (state === "ended") return html`<${Chip} title="The server has ended the stream of changes; reload to follow again">not live<//>`;
  return html`<${Chip} tone="warn" title="The stream of changes is being opened">connecting<//>`;
}

function ActiveFilters({ filter }) {
  const shown = Object.keys(FIELDS).filter((name) => filter[name]);
  if (!addressOf(filter) && !savedFilters.value.runs?.length) return null;
  return html`<div class="bar filters">
    ${shown.map(
      (name) => html`<span class="chip removable" key=${name}><span>${FIELDS[name]}: <bdi>${labelOf(name, filter[name])}</bdi></span><button type="button" aria-label=${`Remove the filter ${FIELDS[name]}`} onClick=${() => setQuery({ [name]: "", ...(name === "root" ? { root_run_id: "" } : {}) })}><${Icon} name="x" size=${12} /></button></span>`,
    )}
    <${SavedFilters} filter=${filter} />
  </div>`;
}

function Nothing({ filter, isFiltered }) {
  if (isFiltered)
    return html`<${Empty} icon="filter" title="No run fits this filter" command=${commandOf(filter, Date.now())}>
      <p class="actions centered"><${Button} icon="x" onClick=${() => navigate("/runs")}>Remove all filters<//></p>
    <//>`;
  return html`<${Empty} icon="list" title="There are no runs yet" command=${'loomlog run AGENT "Hello"'}>
    <p>Start one here or on the command line.</p>
    ${may("runs:create") ? html`<p class="actions centered"><${Button} kind="primary" icon="play" href=${link("/start")}>Start a run<//></p>` : null}
  <//>`;
}

/** The agent with the link to its run; sub-agents are marked, so that trees can be read from the list. */
function Agent({ row }) {
  return html`${row.depth ? html`<span class="dim" title=${`sub-agent, depth ${row.depth}`}>${"↳ "}</span>` : null}<a href=${link(`/runs/${row.run_id}`)} title=${row.model ? `model ${row.model}` : undefined}><bdi>${row.agent}</bdi></a>${row.def_version ? html` <small class="dim">v${row.def_version}</small>` : null}${row.forked_from ? html` <span class="dim" title=${`fork of ${row.forked_from.run_id} at ${row.forked_from.seq}`}><${Icon} name="git-fork" size=${12} /></span>` : null}`;
}

function Waits({ row }) {
  const text = waitText(row);
  if (!text) return null;
  if (row.awaited_state === "interrupted" && row.live) return html`<a href=${link("/inbox", { run: row.run_id })}>${text}</a>`;
  return html`<span class=${row.status === "failed" || row.quarantined ? "bad" : "soft"} title=${text}><bdi>${text}</bdi></span>`;
}

function Tools({ row }) {
  if (!row.tool_errors) return html`<span>${formatShort(row.tool_calls)}</span>`;
  return html`<span class="bad" title=${`${formatCount(row.tool_calls)} calls, ${formatCount(row.tool_errors)} errors`}><${Icon} name="circle-alert" size=${11} /> ${formatShort(row.tool_calls)}<span class="spoken"> (with errors: ${formatCount(row.tool_errors)})</span></span>`;
}

function Who({ row, isAdmin }) {
  return html`<bdi title=${`${row.user_id} of ${row.tenant_id}`}>${row.user_id}${isAdmin ? html` <small class="dim">${row.tenant_id}</small>` : null}</bdi>`;
}

function wideColumns(isAdmin) {
  return [
    { key: "status", title: "Status", width: "10.9rem", cell: (row) => html`<${RunStatus} run=${row} />` },
    { key: "agent", title: "Agent", width: "minmax(5.3rem, 1.2fr)", cell: (row) => html`<${Agent} row=${row} />` },
    { key: "run", title: "Run", width: "4.8rem", cell: (row) => html`<${Id} id=${row.run_id} short=${6} />` },
    { key: "who", title: isAdmin ? "User, tenant" : "User", width: "minmax(5.3rem, 1.2fr)", cell: (row) => html`<${Who} row=${row} isAdmin=${isAdmin} />` },
    { key: "started", title: "Started", width: "5.6rem", cell: (row) => html`<${Time} at=${row.started_at} />` },
    { key: "duration", title: "Duration", width: "4.8rem", align: /** @type {const} */ ("right"), cell: (row) => html`<${Duration} from=${row.started_at} to=${row.completed_at} />` },
    { key: "turns", title: "Turns", width: "2.4rem", align: /** @type {const} */ ("right"), cell: (row) => formatCount(row.iterations) },
    { key: "tools", title: "Tools", width: "2.6rem", align: /** @type {const} */ ("right"), cell: (row) => html`<${Tools} row=${row} />` },
    { key: "tokens", title: "Tokens", width: "3.1rem", align: /** @type {const} */ ("right"), cell: (row) => html`<span title=${`${formatCount(row.input_tokens)} in, ${formatCount(row.output_tokens)} out`}>${formatShort(row.input_tokens + row.output_tokens)}</span>` },
    { key: "cost", title: "Cost", width: "4.1rem", align: /** @type {const} */ ("right"), cell: (row) => (row.currency ? html`<span title=${`${formatMoney(row.cost_micros)} ${row.currency}`}>${formatMoney(row.cost_micros)}</span>` : html`<span class="dim">–</span>`) },
    { key: "waits", title: "Waits for", width: "minmax(4.5rem, 1.8fr)", cell: (row) => html`<${Waits} row=${row} />` },
  ];
}

function NarrowRow({ row }) {
  return html`<span class="two-lines">
    <span class="line"><${RunStatus} run=${row} /><span class="name"><${Agent} row=${row} /></span><span class="dim"><${Time} at=${row.started_at} /></span></span>
    <span class="line dim"><bdi class="name">${row.user_id}</bdi><${Duration} from=${row.started_at} to=${row.completed_at} /><span>${formatShort(row.input_tokens + row.output_tokens)} tokens</span>${row.currency ? html`<span>${formatMoney(row.cost_micros, row.currency)}</span>` : null}</span>
  </span>`;
}
