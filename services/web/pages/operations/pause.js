// Pauses of all widths: everything, a tenant, an agent, a run. A pause holds before the next model call and cancels nothing.
import { html, useState } from "../../ui.js";
import { agents, operations, runs } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { RecordsLink } from "../../components/record_link.js";
import { ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount, formatDuration } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { link } from "../../router.js";
import { may } from "../../session.js";

const EVERY_MS = 5_000;
const WAIT_MS = 20_000;
const SHOWN = 100;
const WIDTHS = {
  run: "One run",
  agent: "All runs of an agent",
  tenant: "All runs of a tenant",
  all: "Everything",
};

export default function Pause() {
  const isAdmin = may("substrate:admin");
  const state = useResource((signal) => (isAdmin ? operations.pauses({ signal }) : Promise.resolve(null)), [], { everyMs: isAdmin ? EVERY_MS : 0 });
  const paused = useResource((signal) => runs.list({ waiting: "pause_requested", limit: SHOWN }, { signal }), [], { everyMs: EVERY_MS });
  const reload = () => (state.reload(), paused.reload());
  return html`<div class="halves">
    <div class="fields">
      ${isAdmin ? html`<section class="card"><header><h2>Pauses in force</h2>${state.data ? html`<${State} state=${state.data} />` : null}</header><${Resource} of=${state} rows=${2}>${(data) => (data ? html`<${Pauses} pauses=${data.pauses} onDone=${reload} />` : null)}<//></section>` : null}
      <section class="card"><header><h2>Paused runs</h2></header><${Resource} of=${paused} rows=${3}>${(data) => html`<${PausedRuns} list=${data} onDone=${reload} />`}<//></section>
    </div>
    <${PauseForm} widths=${isAdmin ? Object.keys(WIDTHS) : ["run"]} onDone=${reload} />
  </div>`;
}

/** @param {{state: Api.PauseState}} properties */
function State({ state }) {
  const [tone, icon] = { running: ["live", "circle-play"], pausing: ["warn", "loader"], paused: ["warn", "circle-pause"] }[state.state] ?? ["", "circle-dot"];
  return html`<${Chip} tone=${tone} icon=${icon}>${state.state}<//>${state.paused_runs_count ? html`<span class="dim">${formatCount(state.paused_runs_count)} ${state.paused_runs_count === 1 ? "run stands" : "runs stand"} still</span>` : null}`;
}

const whatOf = (pause) =>
  pause.scope === "all" ? "Everything" : pause.scope === "tenant" ? html`Tenant <bdi>${pause.tenant}</bdi>` : html`Agent <bdi>${pause.agent}</bdi>${pause.tenant ? html` of <bdi>${pause.tenant}</bdi>` : " in all tenants"}`;

/** @param {{pauses: Api.PauseEntry[], onDone: any}} properties */
function Pauses({ pauses, onDone }) {
  const [lifted, setLifted] = useState(/** @type {any} */ (null));
  const lift = async () => {
    const answer = await operations.resume({ scope: lifted.scope, ...(lifted.tenant ? { tenant: lifted.tenant } : {}), ...(lifted.agent ? { agent: lifted.agent } : {}) });
    toast(`${formatCount(answer.resumed_runs_count)} ${answer.resumed_runs_count === 1 ? "run goes" : "runs go"} on.`);
    onDone();
  };
  return html`<${PlainTable} label="Pauses in force" rows=${pauses} rowKey=${(one) => `${one.scope}/${one.tenant}/${one.agent}`} empty=${html`<p class="state quiet">Nothing is paused.</p>`} columns=${[
      { key: "what", title: "What", cell: whatOf },
      { key: "reason", title: "Reason", cell: (one) => (one.reason ? html`<bdi class="wraps">${one.reason}</bdi>` : html`<span class="dim">none given</span>`) },
      { key: "by", title: "By", cell: (one) => html`<bdi>${one.by}</bdi>` },
      { key: "at", title: "Since", cell: (one) => html`<${Time} at=${one.at} relative /> <${RecordsLink} aggregate="pause:/installation" from=${one.at} type="PauseSet" label="record" />` },
      { key: "act", title: html`<span class="spoken">Actions</span>`, align: "right", cell: (one) => html`<${Button} small icon="play" onClick=${() => setLifted(one)}>Resume<//>` },
    ]} />
    ${lifted ? html`<${Confirm} title="Resume these runs?" confirm="Resume" onConfirm=${lift} onClose=${() => setLifted(null)}><p>${whatOf(lifted)} goes on. Other pauses that also hold a run still apply.</p><//>` : null}`;
}

/** @param {{list: Api.RunList, onDone: any}} properties */
function PausedRuns({ list, onDone }) {
  const action = useAction();
  const resume = (run) => action.run(async () => {
    await runs.resume(run.run_id);
    toast("The run goes on, unless a wider pause holds it.");
    onDone();
  });
  return html`<div class="scrolls" tabindex="0" role="group" aria-label="Paused runs"><${PlainTable} label="Paused runs" rows=${list.runs} rowKey=${(run) => run.run_id} empty=${html`<p class="state quiet">No live run is paused.</p>`} columns=${[
      { key: "run", title: "Run", cell: (run) => html`<${Id} id=${run.run_id} href=${link(`/runs/${run.run_id}`)} />` },
      { key: "agent", title: "Agent", cell: (run) => html`<bdi>${run.agent}</bdi>` },
      { key: "who", title: "User", cell: (run) => html`<bdi class="soft">${run.user_id ?? ""}</bdi>` },
      { key: "state", title: "State", cell: (run) => (run.paused ? html`<${Chip} tone="warn">stands still<//>` : html`<${Chip} title="It stands still after the calls that are under way">finishes its calls<//>`) },
      { key: "reason", title: "Reason", cell: (run) => (run.pause_reason ? html`<bdi class="wraps">${run.pause_reason}</bdi>` : html`<span class="dim">–</span>`) },
      { key: "act", title: html`<span class="spoken">Actions</span>`, align: "right", cell: (run) => html`<${Button} small icon="play" isDisabled=${action.isBusy} onClick=${() => resume(run)}>Resume<//>` },
    ]} /></div>
    ${action.error ? html`<div class="inside"><${ErrorState} error=${action.error} compact /></div>` : null}
    ${list.next ? html`<p class="inside"><a href=${link("/runs", { waits: "pause_requested" })}>All paused runs, with resume of many at once</a></p>` : null}`;
}

function PauseForm({ widths, onDone }) {
  const [width, setWidth] = useState(widths[0]);
  const [target, setTarget] = useState({ run: "", agent: "", tenant: "" });
  const [reason, setReason] = useState("");
  const [isAsked, setAsked] = useState(false);
  const [result, setResult] = useState(/** @type {any} */ (null));
  const names = useResource(() => agents.runnable().catch(() => ({ agents: [] })), []);
  const set = (name) => (value) => setTarget((before) => ({ ...before, [name]: value.trim() }));
  const [unknown, setUnknown] = useState("");
  const check = useAction();
  /** Asks whether there is any run of what is to be paused: a misspelt name would pause nothing, and say that it holds. */
  const ask = () =>
    check.run(async () => {
      const { tenant, agent } = { tenant: width === "all" || width === "run" ? "" : target.tenant, agent: width === "agent" ? target.agent : "" };
      const known = !tenant && !agent ? true : (await runs.list({ tenant, agent, limit: 1 })).runs.length > 0;
      setUnknown(known ? "" : target[width]);
      setAsked(true);
    });
  const isReady = width === "all" || Boolean(target[width]);
  const pause = async () => {
    if (width === "run") {
      await runs.pause(target.run, reason.trim() ? { reason: reason.trim() } : {});
      setResult({ run: target.run });
    } else {
      setResult(await operations.pause({ scope: width, timeout_ms: WAIT_MS, ...(width === "agent" ? { agent: target.agent } : {}), ...(width !== "all" && target.tenant ? { tenant: target.tenant } : {}), ...(reason.trim() ? { reason: reason.trim() } : {}) }));
    }
    setReason("");
    onDone();
  };
  return html`<form class="card" aria-label="Pause" onSubmit=${(event) => (event.preventDefault(), isReady && ask())}>
    <header><h2>Pause</h2></header>
    <div class="inside fields">
      <p class="hint">A pause holds runs before their next model call. Calls under way are finished and nothing is cancelled; what would start meanwhile is refused.</p>
      <${Field} label="What" value=${width} options=${widths.map((value) => ({ value, title: WIDTHS[value] }))} onInput=${setWidth} />
      ${width === "run" ? html`<${Field} label="Run" code value=${target.run} onInput=${set("run")} required placeholder="r_…" hint=${html`To pause many at once, choose them in <a href=${link("/runs", { status: "running" })}>the list of runs</a>.`} />` : null}
      ${width === "agent" ? html`<${Field} label="Agent" value=${target.agent} onInput=${set("agent")} required list=${(names.data?.agents ?? []).map((one) => one.name)} />` : null}
      ${width === "agent" || width === "tenant" ? html`<${Field} label="Tenant" value=${target.tenant} onInput=${set("tenant")} required=${width === "tenant"} hint=${width === "agent" ? "Empty: the agent in all tenants." : ""} />` : null}
      <${Field} label="Reason" value=${reason} onInput=${setReason} hint="Kept in the log and shown to whoever looks at a paused run." />
      ${check.error ? html`<${ErrorState} error=${check.error} compact />` : null}
      <div aria-live="polite">${result ? html`<${Result} result=${result} />` : null}</div>
    </div>
    <footer class="form-actions"><${Button} kind="primary" icon="pause" type="submit" isBusy=${check.isBusy} isDisabled=${!isReady}>Pause<//></footer>
    ${isAsked ? html`<${Confirm} title=${`Pause ${WIDTHS[width].toLowerCase()}?`} confirm="Pause" danger=${width === "all" || Boolean(unknown)} typed=${width === "all" ? "everything" : unknown} onConfirm=${pause} onClose=${() => setAsked(false)}>
      ${unknown ? html`<p class="note warn"><b>Nothing is known of <bdi>${unknown}</bdi>:</b> it has had no run${width === "agent" && target.tenant ? html` in <bdi>${target.tenant}</bdi>` : null}. Pause it only if it is spelt so.</p>` : null}
      <p>${width === "all" ? "No run of any tenant goes on until you resume." : html`<bdi>${target[width]}</bdi>${width === "agent" && target.tenant ? html` of <bdi>${target.tenant}</bdi>` : null} does not go on until you resume.`} ${width === "run" ? "" : `This waits at most ${WAIT_MS / 1_000} s until its runs stand still.`}</p>
    <//>` : null}
  </form>`;
}

function Result({ result }) {
  if (result.run) return html`<p class="note good">The run <a href=${link(`/runs/${result.run}`)}>${result.run}</a> pauses before its next model call.</p>`;
  return html`<div class=${`note ${result.warnings.length ? "warn" : "good"}`}><p>${result.warnings.length ? "The pause holds; some runs still finish their calls." : "The pause holds."} ${formatCount(result.paused_runs_count)} ${result.paused_runs_count === 1 ? "run stands" : "runs stand"} still, after ${formatDuration(result.duration_ms)}.</p>
    ${result.warnings.length ? html`<ul class="plain">${result.warnings.slice(0, 10).map((text) => html`<li key=${text}>${text}</li>`)}${result.warnings.length > 10 ? html`<li>and ${result.warnings.length - 10} more</li>` : null}</ul>` : null}</div>`;
}
