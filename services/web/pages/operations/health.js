// Health: this process, what the checks found and what to do, how far the read models are.
import { html } from "../../ui.js";
import { ApiError, health, operations } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { ErrorState, Loading, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount, formatDuration } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { link } from "../../router.js";

const EVERY_MS = 5_000;
const CHECKS_EVERY_MS = 15_000;
const LOOKS = { ok: ["good", "circle-check"], warn: ["warn", "triangle-alert"], fail: ["bad", "circle-x"], off: ["", "circle-slash"] };
/** Seconds without a word after which a projector counts as down. */
const SILENT_AFTER_S = 10;

export default function Health() {
  const process = useResource(() => health(), [], { everyMs: EVERY_MS });
  const ready = useResource(readiness, [], { everyMs: EVERY_MS });
  const checks = useResource((signal) => operations.checks({ signal }), [], { everyMs: CHECKS_EVERY_MS });
  const lag = useResource((signal) => operations.projections({ signal }), [], { everyMs: EVERY_MS });
  return html`
    ${process.data ? html`<${Process} health=${process.data} ready=${ready.data} />` : process.error ? html`<${ErrorState} error=${process.error} onRetry=${process.reload} />` : html`<${Loading} rows=${1} />`}
    <section class="card"><header><h2>Checks</h2>${checks.data ? html`<${Summary} checks=${checks.data.checks} />` : null}<${Button} icon="refresh-cw" label="Check again" isBusy=${checks.isLoading} onClick=${checks.reload} /></header>
      <${Resource} of=${checks}>${(data) => html`<${Checks} checks=${data.checks} />`}<//>
      <p class="inside hint">These are the checks that a server can make by itself. <code>loomlog doctor</code> also looks at its machine: Java, ports, files, the disk.</p></section>
    <section class="card"><header><h2>Read models</h2>${lag.data?.problems ? html`<a href=${link("/log")}><${Chip} tone="bad" icon="triangle-alert">${formatCount(lag.data.problems)} ${lag.data.problems === 1 ? "record" : "records"} could not be projected<//></a>` : null}</header>
      <${Resource} of=${lag}>${(data) => html`<${Lag} lag=${data} />`}<//></section>
    <p class="hint">Dead letters are in <a href=${link("/log/dead-letters")}>the log</a>, quarantined runs in <a href=${link("/runs", { waits: "quarantined" })}>the list of runs</a>. An aggregate that is quarantined is looked at and repaired in <a href=${link("/log/projections")}>the projections of the log</a>.</p>
  `;
}

/** The answer of /readyz; a process that is not ready says so with 503, which is an answer here. */
const readiness = () => operations.ready().catch((error) => {
  if (error instanceof ApiError && error.body?.missing) return error.body;
  throw error;
});

/** @param {{health: Api.Health, ready: Api.Readiness | undefined}} properties */
function Process({ health: one, ready }) {
  return html`<dl class="figures">
    <div><dt>Ready</dt><dd class=${ready ? (ready.ready ? "good" : "bad") : "dim"}>${ready ? (ready.ready ? "yes" : `no: ${ready.missing.join(", ")}`) : "–"}</dd></div>
    <div title=${one.commit ? `commit ${one.commit}${one.built ? `, built ${one.built}` : ""}` : "a checkout without a build"}><dt>Version</dt><dd>${one.version}</dd></div>
    <div><dt>Runs for</dt><dd>${formatDuration(one.uptime_seconds * 1_000)}</dd></div>
    <div><dt>This api</dt><dd class="wraps">${one.replica_id}</dd></div>
    <div title="GET /metrics, in the format of Prometheus"><dt>Metrics</dt><dd>${one.metrics_enabled ? "on" : "off"}</dd></div>
  </dl>`;
}

/** @param {{checks: Api.HealthCheck[]}} properties */
function Summary({ checks }) {
  const count = (state) => checks.filter((check) => check.state === state).length;
  const [failed, warned] = [count("fail"), count("warn")];
  if (failed) return html`<${Chip} tone="bad" icon="circle-x">${failed} ${failed === 1 ? "problem" : "problems"}<//>`;
  if (warned) return html`<${Chip} tone="warn" icon="triangle-alert">${warned} ${warned === 1 ? "warning" : "warnings"}<//>`;
  const off = count("off");
  return html`<${Chip} tone="good" icon="circle-check">${off ? `no problem, ${off} off` : "all is well"}<//>`;
}

/** @param {{checks: Api.HealthCheck[]}} properties */
function Checks({ checks }) {
  const order = { fail: 0, warn: 1, off: 2, ok: 3 };
  const sorted = [...checks].sort((a, b) => order[a.state] - order[b.state]);
  return html`<ul class="checks">${sorted.map((check, at) => {
    const [tone, icon] = LOOKS[check.state] ?? ["", "circle-dot"];
    return html`<li key=${check.name + at}><${Chip} tone=${tone} icon=${icon}>${check.state}<//><strong>${check.name}</strong><span class="text">${check.text}</span>${check.remedy ? html`<p class="remedy soft">${check.remedy}</p>` : null}</li>`;
  })}</ul>`;
}

/** @param {{lag: Api.ProjectionLag}} properties */
function Lag({ lag }) {
  return html`
    <${PlainTable} label="Projectors" rows=${lag.projectors} rowKey=${(one) => `${one.topic}/${one.owner}`} empty=${html`<p class="state quiet">No projector has reported yet.</p>`} columns=${[
      { key: "topic", title: "Topic", cell: (one) => one.topic },
      { key: "owner", title: "Projector", cell: (one) => html`<bdi>${one.owner}</bdi>` },
      { key: "state", title: "State", cell: (one) => (one.said_s_ago > SILENT_AFTER_S ? html`<${Chip} tone="bad" title="It reports every two seconds">silent<//>` : html`<${Chip} tone=${one.state === "projecting" ? "good" : "info"}>${one.state}<//>`) },
      { key: "behind", title: "Behind", align: "right", cell: (one) => html`<span class=${one.events_behind ? "warn" : "dim"}>${formatCount(one.events_behind)}</span>` },
      { key: "lag", title: "Lag", align: "right", cell: (one) => formatDuration(one.lag_ms) },
      { key: "applied", title: "Applied", align: "right", cell: (one) => html`<span title=${one.stale_records ? `${formatCount(one.stale_records)} records of fenced owners were left out` : ""}>${formatCount(one.applied_events)}</span>` },
      { key: "said", title: "Reported", align: "right", cell: (one) => html`<${Time} at=${Date.now() - one.said_s_ago * 1_000} relative />` },
    ]} />
    <${PlainTable} label=${`Partitions of ${lag.topic}`} rows=${lag.partitions} rowKey=${(one) => String(one.partition)} columns=${[
      { key: "partition", title: lag.topic, cell: (one) => html`<a href=${link(`/log/${lag.topic}/${one.partition}`)}>partition ${one.partition}</a>` },
      { key: "next", title: "Next", align: "right", cell: (one) => formatCount(one.next_offset) },
      { key: "end", title: "End", align: "right", cell: (one) => formatCount(one.end_offset) },
      { key: "lag", title: "Lag", align: "right", cell: (one) => html`<span class=${one.lag ? "warn" : "dim"}>${formatCount(one.lag)}</span>` },
      { key: "owner", title: "Projector", cell: (one) => html`<bdi>${one.owner ?? "none"}</bdi>` },
    ]} />`;
}
