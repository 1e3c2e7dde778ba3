// Activity: what runs now, the last minutes as charts, the partitions of the log and who owns them, budgets.
import { html, useMemo } from "../ui.js";
import { activity, operations } from "../api.js";
import { Button, Chip, CopyButton, Tabs } from "../components/controls.js";
import { Chart } from "../components/chart.js";
import { Empty, ErrorState, Loading, Resource } from "../components/states.js";
import { PlainTable } from "../components/table.js";
import { formatCount, formatDuration, formatMoney, formatShort } from "../components/time.js";
import { useResource } from "../resource.js";
import { here, link, setQuery } from "../router.js";
import { WINDOWS, chartsOf, windowOf } from "./activity/model.js";
import { Partitions } from "./activity/partitions.js";
import { BudgetBars } from "./operations/budget_bars.js";
import { BudgetMonth } from "./operations/budget_month.js";
import { accountOf } from "./operations/budget_model.js";

const REPORT_EVERY_MS = 2_000;
const STATE_EVERY_MS = 5_000;

export default function Activity() {
  const report = useResource((signal) => activity.insights({ signal }), [], { everyMs: REPORT_EVERY_MS });
  const partitions = useResource((signal) => activity.partitions({ takeovers: 10 }, { signal }), [], { everyMs: STATE_EVERY_MS });
  const active = useResource((signal) => activity.concurrency({ signal }), [], { everyMs: STATE_EVERY_MS });
  const limits = useResource((signal) => operations.limits({}, { signal }), [], { everyMs: STATE_EVERY_MS });
  const data = report.data;
  const name = data ? windowOf(here.value.query.get("window"), data) : "";
  return html`<div class="page activity">
    <header>
      <h1>Activity</h1>
      ${data ? html`<${Tabs} label="Time of the figures" selected=${name} onSelect=${(key) => setQuery({ window: key })} tabs=${WINDOWS.filter((one) => data.windows[one]).map((one) => ({ key: one, title: `Last ${one.replace("m", " min")}` }))} />` : null}
      <span class="grow"></span>
      ${data && data.lag_records > 0 ? html`<${Chip} tone="warn" title="Records of the log that the figures do not include yet">${formatCount(data.lag_records)} records behind<//>` : data && !report.error ? html`<${Chip} tone="live" icon="activity">live<//>` : null}
    </header>
    <${Figures} window=${data?.windows[name]} active=${active.data} />
    ${report.error && report.error.status !== 0 ? html`<${Away} error=${report.error} hasFigures=${Boolean(data)} onRetry=${report.reload} />` : null}
    ${data && !data.is_whole ? html`<p class="note warn">The figures are too low: the history is being read again from the log. They are whole in a moment.</p>` : null}
    ${data ? html`<${Charts} report=${data} /><${Names} window=${data.windows[name]} />` : report.error ? null : html`<${Loading} rows=${6} />`}
    <${Partitions} list=${partitions} />
    <div class="halves">
      <section class="card"><header><h2>Active runs</h2></header><${Resource} of=${active} rows=${3}>${(stats) => html`<${Active} stats=${stats} />`}<//></section>
      <section class="card"><header><h2>Budgets this month</h2><a href=${link("/operations/limits")}>Limits</a></header><${Resource} of=${limits} rows=${3}>${({ limits }) => html`<${Budgets} limits=${limits} />`}<//></section>
    </div>
  </div>`;
}

/** Insights is one process beside the api; everything else on this page is there without it. */
function Away({ error, hasFigures, onRetry }) {
  if (error.code !== "insights_unavailable") return html`<${ErrorState} error=${error} onRetry=${onRetry} compact />`;
  return html`<section class="note warn activity-away" role="status">
    <p><strong>${hasFigures ? "The charts stand still: insights does not answer." : "There are no charts: insights does not answer."}</strong> Partitions, active runs and budgets below come from elsewhere and go on. This page asks again by itself.</p>
    <p><bdi>${error.message}</bdi></p>
    <p class="actions"><code>loomlog status</code><${CopyButton} text="loomlog status" label="Copy the command" /> <${Button} small icon="rotate-ccw" onClick=${onRetry}>Ask now<//></p>
  </section>`;
}

/** @param {{window: Api.InsightsWindow | undefined, active: Api.Concurrency | undefined}} properties */
function Figures({ window, active }) {
  const rate = (value) => (value === undefined ? "–" : value >= 100 ? formatShort(Math.round(value)) : String(Math.round(value * 10) / 10));
  const took = (ms) => (ms === null || ms === undefined ? "–" : formatDuration(ms));
  const costs = Object.entries(window?.cost_micros_per_minute ?? {});
  const figures = [
    ["Active now", active ? formatCount(active.active) : "–", "runs that have not ended"],
    ["At work", active ? formatCount(active.at_work) : "–", "active runs that do not wait for a person, a child or a pause"],
    ["Ended a minute", rate(window?.runs_per_minute), "runs that ended"],
    ["Failed", window ? `${Math.round(window.error_ratio * 1000) / 10} %` : "–", "of the runs that ended", window && window.error_ratio > 0.05 ? "bad" : ""],
    ["Median duration", took(window?.duration_ms.p50), "of runs, from start to end"],
    ["95th percentile", took(window?.duration_ms.p95), "of the durations of runs"],
    ["Tokens a minute", window ? formatShort(Math.round(window.input_tokens_per_minute + window.output_tokens_per_minute)) : "–", window ? `${formatCount(Math.round(window.input_tokens_per_minute))} in, ${formatCount(Math.round(window.output_tokens_per_minute))} out` : ""],
    ...(costs.length ? costs : [/** @type {[string, any]} */ (["", null])]).map(([currency, micros]) => ["Cost a minute", micros === null ? "–" : html`${formatMoney(micros)} <small>${currency}</small>`, "of calls with a known price"]),
  ];
  return html`<dl class="figures">${figures.map(([name, value, title, tone], at) => html`<div key=${name + at} title=${title}><dt>${name}</dt><dd class=${tone ?? ""}>${value}</dd></div>`)}</dl>`;
}

/** @param {{report: Api.InsightsReport}} properties */
function Charts({ report }) {
  const charts = useMemo(() => chartsOf(report), [report.at_ms]);
  if (!charts.times.length) return html`<section class="card"><${Empty} icon="activity" title=${`No run ended in the last ${report.history_minutes} minutes`} command="loomlog run assistant 'Say hello'"><p>The charts show runs by the minute in which they ended. <a href=${link("/start")}>Start one</a>.</p><//></section>`;
  const shared = { times: charts.times };
  return html`<div class="charts">
    <${Card} title="Runs that ended, each minute" note="by status"><${Chart} ...${shared} title="Runs that ended, each minute" series=${charts.runs} stacked format=${formatCount} /><//>
    <${Card} title="Duration of runs" note="from start to end"><${Chart} ...${shared} title="Duration of runs" series=${charts.durations} format=${formatDuration} /><//>
    <${Card} title="Latency of models" note="95th percentile of answered calls"><${Chart} ...${shared} title="Latency of models" series=${charts.latencies.length ? charts.latencies : [{ name: "no timed call", values: charts.times.map(() => null) }]} format=${formatDuration} /><//>
    <${Card} title="Errors, each minute" note="what failed"><${Chart} ...${shared} title="Errors, each minute" series=${charts.errors} stacked format=${formatCount} /><//>
    <${Card} title="Tokens, each minute" note="of runs that ended"><${Chart} ...${shared} title="Tokens, each minute" series=${charts.tokens} stacked format=${formatShort} /><//>
    ${charts.costs.map(({ currency, values }) => html`<${Card} key=${currency} title="Cost, each minute" note=${currency}><${Chart} ...${shared} title=${`Cost, each minute, ${currency}`} series=${[{ name: currency, values, tone: "c4" }]} stacked format=${(micros) => formatMoney(micros)} /><//>`)}
  </div>`;
}

const Card = ({ title, note, children }) => html`<section class="card"><header><h2>${title}</h2><small class="dim">${note}</small></header><div class="inside">${children}</div></section>`;

const failed = ({ errors, error_ratio: ratio }) => html`<span class=${ratio > 0.05 ? "bad" : errors ? "" : "dim"}>${formatCount(errors)}${errors ? html` <small>(${Math.round(ratio * 1000) / 10} %)</small>` : null}</span>`;
const took = (value) => (value === null || value === undefined ? html`<span class="dim">–</span>` : formatDuration(value));
const counts = (what) => [
  { key: "count", title: what, align: /** @type {const} */ ("right"), sort: (row) => row.runs ?? row.calls, cell: (row) => formatCount(row.runs ?? row.calls) },
  { key: "errors", title: "Failed", align: /** @type {const} */ ("right"), sort: (row) => row.error_ratio, cell: failed },
];

/** Agents, models and tools of the window. @param {{window: Api.InsightsWindow}} properties */
function Names({ window }) {
  const none = (what) => html`<p class="state quiet">No ${what} in this time.</p>`;
  return html`<div class="charts names">
    <section class="card"><header><h2>Models</h2></header><div class="scrolls" tabindex="0" role="group" aria-label="Models"><${PlainTable} label="Models" rows=${window.models} rowKey=${(row) => `${row.provider}/${row.model}`} empty=${none("call of a model")} columns=${[
      { key: "model", title: "Model", sort: (row) => row.model, cell: (row) => html`<bdi>${row.model}</bdi> <small class="dim">${row.provider}</small>` },
      ...counts("Calls"),
      { key: "p50", title: "Median", align: "right", sort: (row) => row.duration_ms.p50, cell: (row) => took(row.duration_ms.p50) },
      { key: "p95", title: "95th pct.", align: "right", sort: (row) => row.duration_ms.p95, cell: (row) => took(row.duration_ms.p95) },
    ]} /></div></section>
    <section class="card"><header><h2>Agents</h2></header><div class="scrolls" tabindex="0" role="group" aria-label="Agents"><${PlainTable} label="Agents" rows=${window.agents} rowKey=${(row) => `${row.tenant}/${row.agent}`} empty=${none("run")} columns=${[
      { key: "agent", title: "Agent", sort: (row) => row.agent, cell: (row) => html`<a href=${link("/runs", { agent: row.agent, tenant: row.tenant })}><bdi>${row.agent}</bdi></a>` },
      { key: "tenant", title: "Tenant", sort: (row) => row.tenant, cell: (row) => html`<bdi class="dim">${row.tenant}</bdi>` },
      ...counts("Runs"),
    ]} /></div></section>
    <section class="card"><header><h2>Tools</h2></header><div class="scrolls" tabindex="0" role="group" aria-label="Tools"><${PlainTable} label="Tools" rows=${window.tools} rowKey=${(row) => row.tool} empty=${none("call of a tool")} columns=${[{ key: "tool", title: "Tool", sort: (row) => row.tool, cell: (row) => html`<bdi>${row.tool}</bdi>` }, ...counts("Calls")]} /></div></section>
  </div>`;
}

/** @param {{stats: Api.Concurrency}} properties */
function Active({ stats }) {
  const users = Object.entries(stats.per_user).sort((a, b) => b[1] - a[1]);
  const providers = Object.entries(stats.providers);
  const nobody = html`<p class="state quiet">No run is active.</p>`;
  return html`<div class="inside"><p class="soft">${formatCount(stats.active)} active, ${formatCount(stats.at_work)} at work, ${formatCount(stats.queued)} ${stats.queued === 1 ? "start waits" : "starts wait"} to be taken.</p></div>
    ${stats.active
      ? html`<div class="scrolls" tabindex="0" role="group" aria-label="Active runs by user"><${PlainTable} label="Active runs by user" rows=${users} rowKey=${([user]) => user} empty=${nobody} columns=${[
            { key: "user", title: "User", cell: ([user]) => (user ? html`<a href=${link("/runs", { status: "running", user_id: user })}><bdi>${user}</bdi></a>` : html`<span class="dim">none</span>`) },
            { key: "runs", title: "Runs", align: "right", cell: ([, count]) => formatCount(count) },
          ]} />
          <${PlainTable} label="Active runs by provider" rows=${providers} rowKey=${([name]) => name} empty=${nobody} columns=${[
            { key: "provider", title: "Provider", cell: ([name]) => html`<bdi>${name || "not chosen yet"}</bdi>` },
            { key: "runs", title: "Runs", align: "right", cell: ([, one]) => formatCount(one.active) },
          ]} /></div>`
      : nobody}`;
}

/** @param {{limits: Api.Limit[]}} properties */
function Budgets({ limits }) {
  if (!limits.length) return html`<${Empty} icon="coins" title="No limit is set" command="loomlog limits set --tenant acme --hard 2000000"><p>Nothing ends what is spent. <a href=${link("/operations/limits")}>Set a limit</a>.</p><//>`;
  return html`<div class="scrolls" tabindex="0" role="group" aria-label="Budgets"><${PlainTable} label="Budgets" rows=${limits} rowKey=${(one) => `${one.tenant_id}/${one.scope}/${one.scope_id}`} columns=${[
    { key: "account", title: "Whose", cell: (one) => html`<bdi>${accountOf(one)}</bdi>` },
    { key: "use", title: "Used", cell: (one) => html`<${BudgetBars} limit=${one} />` },
  ]} /></div>
  <${BudgetMonth} limits=${limits} />`;
}
