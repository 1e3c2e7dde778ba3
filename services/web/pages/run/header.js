// The head of a run's page: what it is, how it stands, what it costs, what it waits for, and what to do when it cannot go on.
import { html, useEffect, useMemo, useState } from "../../ui.js";
import { runs } from "../../api.js";
import { Button, Chip, Id } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Icon } from "../../components/icon.js";
import { LongText } from "../../components/json.js";
import { ErrorState } from "../../components/states.js";
import { RunStatus } from "../../components/status.js";
import { Duration, Time, formatCount, formatMoney, formatShort } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { link } from "../../router.js";
import { may } from "../../session.js";
import { waitOf } from "./model.js";

const PARENTS_MAX = 12;
/** Fill of the context, in percent, from which the gauge warns. */
const AMBER_PCT = 70;
const RED_PCT = 90;

/** @param {{history: import("./history.js").History, actions?: any}} properties */
export function RunHeader({ history, actions }) {
  const { run, events, reload } = history;
  const definition = events[0]?.payload?.definition;
  return html`<header class="run-head">
    <${Breadcrumbs} run=${run} />
    <div class="bar">
      <h1>${agentLink(run)}</h1>
      <${RunStatus} run=${run} />
      <${Wait} history=${history} />
      <${Id} id=${run.run_id} short=${12} />
      <span class="grow"></span>
      <span class="actions run-actions">${actions}<${RunControls} run=${run} reload=${reload} /></span>
    </div>
    <dl class="run-facts">
      ${fact("Model", html`<span title=${`${run.provider} ${definition?.effort ? `effort ${definition.effort}` : ""}`}>${run.model || "–"}</span>`)}
      ${fact("User", html`<bdi>${run.user_id || "–"}</bdi>`)}
      ${may("substrate:admin") ? fact("Tenant", html`<bdi>${run.tenant_id}</bdi>`) : null}
      ${fact("Started", html`<${Time} at=${run.started_at} />`)}
      ${fact("Duration", html`<${Duration} from=${run.started_at} to=${run.completed_at} />`)}
      ${fact("Turns", formatCount(run.iterations))}
      ${fact("Tools", html`${formatCount(run.tool_calls)}${run.tool_errors ? html` <small class="bad">${run.tool_errors} ${run.tool_errors === 1 ? "error" : "errors"}</small>` : null}`)}
      ${fact("Tokens", html`<span title=${tokensInWords(run.usage)}>${formatShort(run.usage.input_tokens + cached(run.usage))} in · ${formatShort(run.usage.output_tokens)} out</span>`)}
      ${fact("Cost", formatMoney(run.cost_micros, run.currency))}
      ${run.context ? fact("Context", html`<${Gauge} context=${run.context} />`) : null}
      ${run.children ? fact("Sub-agents", html`<a href=${link(`/runs/${run.run_id}/tree`)}>${run.children}</a>`) : null}
      ${fact("Session", html`<${Id} id=${run.session_id} short=${6} href=${link("/runs", { session_id: run.session_id })} />`)}
    </dl>
    <${Trouble} run=${run} reload=${reload} />
  </header>`;
}

const fact = (name, value) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`;
const cached = (usage) => usage.cache_read_input_tokens + usage.cache_creation_input_tokens;
const tokensInWords = (usage) => `${formatCount(usage.input_tokens)} in, ${formatCount(usage.cache_read_input_tokens)} read from the cache, ${formatCount(usage.cache_creation_input_tokens)} written to it, ${formatCount(usage.output_tokens)} out`;

/** @param {Api.Run} run */
function agentLink(run) {
  const version = run.def_version ? html`<small class="dim"> v${run.def_version}</small>` : null;
  const to = run.def_id ? link(`/library/version/${encodeURIComponent(run.def_id)}`) : link(`/library/agent/${encodeURIComponent(run.agent)}`);
  const hash = run.definition_sha256 ? `definition ${run.definition_sha256.slice(0, 12)}` : "";
  return may("tenant:read") ? html`<a class="plain" href=${to} title=${hash}><bdi>${run.agent}</bdi>${version}</a>` : html`<span title=${hash}><bdi>${run.agent}</bdi>${version}</span>`;
}

/** The runs above this one, from the root on. @param {{run: Api.Run}} properties */
function Breadcrumbs({ run }) {
  const parents = useResource(async (signal) => (run.parent_run_id ? parentsOf(run, signal) : []), [run.run_id, run.parent_run_id]);
  if (!run.parent_run_id) return null;
  const chain = parents.data ?? [];
  return html`<nav class="breadcrumbs" aria-label="Runs above this one">
    ${chain.map((one) => html`<a href=${link(`/runs/${one.run_id}`)} key=${one.run_id} title=${one.run_id}><bdi>${one.agent}</bdi></a><${Icon} name="chevron-right" size=${13} />`)}
    <span aria-current="page"><bdi>${run.agent}</bdi></span>
  </nav>`;
}

/** @param {Api.Run} run */
async function parentsOf(run, signal) {
  const chain = [];
  for (let id = run.parent_run_id; id && chain.length < PARENTS_MAX; ) {
    const parent = await runs.one(id, { signal });
    chain.unshift(parent);
    id = parent.parent_run_id;
  }
  return chain;
}

/** Fill of the context window at the last answer. @param {{context: Api.ContextFill}} properties */
function Gauge({ context }) {
  const percent = Math.min(100, context.used_pct);
  const tone = percent >= RED_PCT ? "bad" : percent >= AMBER_PCT ? "warn" : "";
  const said = `${formatCount(context.used_tokens)} of ${formatCount(context.max_tokens)} tokens`;
  return html`<span class=${`gauge ${tone}`} role="meter" aria-label="Fill of the context" aria-valuenow=${percent} aria-valuemin="0" aria-valuemax="100" aria-valuetext=${said} title=${said}><span class="fill"><i style=${{ width: `${Math.max(2, percent)}%` }}></i></span><span>${percent < 10 ? percent.toFixed(1) : Math.round(percent)} %</span></span>`;
}

/** What it waits for, where its status does not say it already. */
function Wait({ history }) {
  const { run, events } = history;
  const wait = useMemo(() => waitOf(run, events), [run, events]);
  if (!wait) return null;
  if (run.paused) return wait.why ? html`<span class="soft">because <bdi>${wait.why}</bdi></span>` : null;
  if (run.awaited_state || run.parked) return null;
  return html`<${Chip} tone=${wait.tone} icon=${wait.icon} title=${wait.why}><bdi>${wait.word.startsWith("pauses") ? wait.word : `waits for ${wait.word}`}</bdi><//>`;
}

/** What went wrong, and what can be done about it. @param {{run: Api.Run, reload: any}} properties */
function Trouble({ run, reload }) {
  const action = useAction();
  if (run.quarantined) {
    const release = async () => (await action.run(() => runs.release(run.run_id))) !== false && (toast("The run is released: its state is read from the log again."), reload());
    return html`<div class="note bad trouble"><p><b>Quarantined.</b> Nothing of this run goes on until it is released; other runs are not affected.</p>
      <p><${LongText} text=${run.quarantine_error ?? ""} /></p>
      ${may("substrate:admin") ? html`<p class="actions"><${Button} small icon="circle-play" isBusy=${action.isBusy} onClick=${release}>Release<//><small class="soft">After the cause is repaired, such as by an upgrade. On the command line: <code>loomlog runs release ${run.run_id}</code></small></p>` : html`<p class="soft">An administrator can release it.</p>`}
      ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}</div>`;
  }
  if (run.status !== "failed") return null;
  return html`<div class="note bad trouble"><p><b>Failed</b>${run.error_code ? html` <code>${run.error_code}</code>` : null} <${LongText} text=${run.error ?? ""} /></p><p class="soft">${adviceFor(run.error_code ?? "")}</p></div>`;
}

/** @param {string} code */
function adviceFor(code) {
  if (code.startsWith("model_error")) return "The provider refused or did not answer; the conversation shows each attempt. Continue the session below, or fork before the failed turn with another model.";
  if (/limit|budget|exhausted/.test(code)) return "A limit was reached. Raise it under Operations, then continue the session below.";
  if (/timeout/.test(code)) return "It took longer than it may. Give it more time (run_timeout_seconds), then continue the session below.";
  return "The conversation and the raw records show what came before. Continue the session below, or fork it before the failure.";
}

/** Orders to a live run; those of the composer are not repeated here. @param {{run: Api.Run, reload: () => void}} properties */
export function RunControls({ run, reload }) {
  const [isCancelling, setCancelling] = useState(false);
  const [isClosing, setClosing] = useState(false);
  const action = useAction();
  useEffect(() => {
    if (action.error) toast(action.error.message, "bad");
  }, [action.error]);
  if (!may("runs:create")) return null;
  const isLive = run.status === "running";
  const order = async (act, said) => (await action.run(act)) !== false && (toast(said), reload());
  const compact = async () => {
    const done = await action.run(() => runs.compact(run.run_id, {}));
    if (done) toast(done.compacted ? `Compacted: ${formatCount(done.before_tokens)} to ${formatCount(done.after_tokens)} tokens` : "There was nothing to compact: the conversation is short");
    reload();
  };
  const isHeld = run.paused || run.pause_requested;
  return html`
    ${run.parked || !isLive ? html`<${Button} small icon="archive" isDisabled=${action.isBusy} title="Replace the older part of the conversation by a summary" onClick=${compact}>Compact<//>` : null}
    ${isLive && !run.quarantined
      ? isHeld
        ? html`<${Button} small icon="play" isDisabled=${action.isBusy} onClick=${() => order(() => runs.resume(run.run_id), "Resumed")}>Resume<//>`
        : html`<${Button} small icon="pause" isDisabled=${action.isBusy} title="Pause before the next model call; calls under way are finished" onClick=${() => order(() => runs.pause(run.run_id), "It pauses before its next model call")}>Pause<//>`
      : null}
    ${isLive && run.resident ? html`<${Button} small icon="log-out" onClick=${() => setClosing(true)}>Close<//>` : null}
    ${isLive ? html`<${Button} small kind="danger" icon="circle-slash" onClick=${() => setCancelling(true)}>Cancel<//>` : null}
    ${isCancelling
      ? html`<${Confirm} title="Cancel this run?" confirm="Cancel the run" danger needsReason onClose=${() => setCancelling(false)} onConfirm=${async (reason) => (await runs.cancel(run.agent_id, { reason, run_id: run.run_id }), toast("The run is cancelled."), reload())}>
          <p>The run <code>${run.run_id}</code> and its sub-agents end; calls under way are stopped. What it did stays in the log, and its session can be continued.</p><//>`
      : null}
    ${isClosing
      ? html`<${Confirm} title="Close this resident sub-agent?" confirm="Close it" danger onClose=${() => setClosing(false)} onConfirm=${async () => (await runs.closeResident(run.run_id), toast("The sub-agent is closed."), reload())}><p>Its parent cannot ask it any more.</p><//>`
      : null}
  `;
}
