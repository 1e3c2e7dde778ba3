// One schedule: when it fires next, what it starts, what it has fired, and what operators do with it.
import { html, useEffect, useState } from "../../ui.js";
import { library, schedules } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { RecordsLink } from "../../components/record_link.js";
import { Empty, ErrorState, Loading, Resource } from "../../components/states.js";
import { Time, formatCount, now } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { usePageTitle } from "../../frame.js";
import { useAction, useResource } from "../../resource.js";
import { here, link } from "../../router.js";
import { may } from "../../session.js";
import { Fires } from "./fires.js";
import { hookWords } from "./hooks.js";
import { Countdown, LastStatus, ScheduleState } from "./list.js";
import { OVERLAP, catchUpWords, entryOf, isForever, promptText, stateOf } from "./model.js";
import { NextTimes } from "./times.js";

const EVERY_MS = 4_000;
const SHOWN = 20;

/** @param {{id: string}} properties name, or id of the active version */
export function SchedulePage({ id }) {
  const tenant = here.value.query.get("tenant") ?? "";
  const found = useResource(async (signal) => ({ entry: entryOf((await schedules.list({ tenant }, { signal })).entries, id, tenant) }), [id, tenant]);
  usePageTitle(found.data?.entry?.name ?? id);
  return html`<div class="page">
    <${Resource} of=${found}>${({ entry }) => (entry ? html`<${Found} key=${entry.active_def_id} first=${entry} reload=${found.reload} />` : html`<${Missing} id=${id} tenant=${tenant} />`)}<//>
  </div>`;
}

function Crumbs({ tenant }) {
  return html`<nav class="crumbs" aria-label="Where you are"><a href=${link("/schedules", { tenant })}>Schedules</a></nav>`;
}

function Missing({ id, tenant }) {
  return html`<header><${Crumbs} tenant=${tenant} /><h1><bdi>${id}</bdi></h1></header>
    <${Empty} icon="calendar-clock" title="There is no schedule of this name" command="loomlog schedules ls">
      <p class="actions"><${Button} href=${link("/schedules", { tenant })}>All schedules<//>${/^def_/.test(id) ? html`<${Button} href=${link(`/library/version/${encodeURIComponent(id)}`, { tenant })}>This version in the library<//>` : html`<${Button} kind="primary" icon="plus" href=${link("/library/create/schedule", { name: id, tenant })}>Create it<//>`}</p>
    <//>`;
}

function Found({ first, reload }) {
  const tenant = here.value.query.get("tenant") ?? "";
  const def = first.active_def_id;
  const isArmed = Boolean(first.state);
  const current = useResource((signal) => (isArmed ? schedules.state(def, { signal }) : Promise.resolve(null)), [def, isArmed], { everyMs: isArmed ? EVERY_MS : 0 });
  const state = first.state ? { ...first.state, ...withoutGone(first.state, current.data) } : null;
  const entry = { ...first, state };
  const [key] = stateOf(entry, now.value);
  const version = useResource((signal) => (def ? library.version(def, { tenant }, { signal }) : Promise.resolve(null)), [def, tenant]);
  const preview = useResource((signal) => (def ? schedules.preview(def, { count: SHOWN }, { signal }) : Promise.resolve(null)), [def, state?.next_run_at ?? ""]);
  const [asked, setAsked] = useState("");
  const action = useAction();
  const done = () => (current.reload(), setAsked(""));
  const name = first.name.split("/").map(encodeURIComponent).join("/");
  const runNow = async () => {
    const answer = await schedules.runNow(def);
    toast(html`It has fired${answer.run_id ? html`: <a href=${link(`/runs/${answer.run_id}`)}>the run</a>` : null}.`);
    current.reload();
  };
  const resume = () => action.run(async () => (await schedules.resume(def), toast(`${first.name} fires at its times again.`), current.reload()));
  return html`
    <header>
      <${Crumbs} tenant=${tenant} />
      <h1><bdi>${first.name}</bdi></h1>
      <${ScheduleState} entry=${entry} />
      ${key === "paused" ? html`<span class="dim">${isForever(state.paused_until) ? "until it is resumed" : html`until <${Time} at=${state.paused_until} />`}</span>` : null}
      <span class="grow"></span>
      <${Button} icon="library" href=${link(`/library/schedule/${name}`, { tenant })}>Definition<//>
      <${Button} icon="git-fork" href=${link(`/library/fork/schedule/${name}`, { tenant })} title="A new version, which becomes active; or of a template, a schedule for a user">Fork<//>
      ${isArmed && key === "paused" ? html`<${Button} icon="play" isBusy=${action.isBusy} onClick=${resume}>Resume<//>` : isArmed ? html`<${Button} icon="pause" onClick=${() => setAsked("pause")}>Pause<//>` : null}
      ${isArmed ? html`<${Button} kind="primary" icon="zap" onClick=${() => setAsked("run")}>Run now<//>` : null}
    </header>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    ${current.error?.status === 404 ? html`<p class="note warn">This version is not in force any more. <${Button} small onClick=${reload}>Show the one that is<//></p>` : current.error ? html`<${ErrorState} error=${current.error} compact />` : null}
    <${Notes} entry=${entry} kind=${key} />
    ${state ? html`<${Figures} state=${state} kind=${key} />` : null}
    <div class="halves">
      <section class="card" aria-label="Next times">
        <header><h2>Next times</h2>${preview.data ? html`<code>${preview.data.times || "no times"}</code><span class="dim">${preview.data.times.startsWith("@every") ? "" : preview.data.timezone}</span>` : null}</header>
        <div class="next-times" tabindex="0" role="group" aria-label="Next times">${preview.data ? html`<${NextTimes} preview=${preview.data} />` : preview.error ? html`<${ErrorState} error=${preview.error} onRetry=${preview.reload} compact />` : def ? html`<${Loading} rows=${6} />` : html`<p class="hint inside">Nothing is ahead without an active version.</p>`}</div>
      </section>
      <section class="card" aria-label="What it does">
        <header><h2>What it does</h2></header>
        <div class="inside">${def ? html`<${Resource} of=${version}>${(data) => (data ? html`<${About} definition=${data.definition} def=${def} tenant=${tenant} entry=${entry} />` : null)}<//>` : html`<p class="hint">No version of it is active.</p>`}</div>
      </section>
    </div>
    ${def ? html`<${Fires} def=${def} mark=${`${state?.last_run_id ?? ""} ${state?.last_status ?? ""} ${state?.last_run_at ?? ""} ${state?.running.join() ?? ""}`} />` : null}
    ${asked === "run"
      ? html`<${Confirm} title=${`Run ${first.name} now?`} confirm="Run now" onClose=${() => setAsked("")} onConfirm=${runNow}><p>A run of <b>${state.agent}</b> starts at once${key === "paused" ? ", although it is paused" : ""}. It counts as a fire; the next time stays as it is.</p><//>`
      : null}
    ${asked === "pause" ? html`<${Pause} name=${first.name} def=${def} onClose=${() => setAsked("")} onDone=${done} />` : null}
  `;
}

/** A state as it is now; what does not apply any more is absent in it. */
function withoutGone(before, data) {
  return data ? { last_run_at: undefined, last_run_id: undefined, last_status: undefined, last_error: undefined, next_run_at: undefined, paused_until: undefined, ...data } : before;
}

function Notes({ entry, kind }) {
  if (kind === "problem") return html`<p class="note bad">Each time fails: ${entry.state.problem}</p>`;
  if (kind === "off") return html`<p class="note">It is off: its definition says <code>enabled: false</code> (as one of a file does that says nothing), or the installation has schedules off. Run now works.</p>`;
  if (kind === "template") return html`<p class="note">It is a template: its times depend on the tier of a user. Fork it with <code>user_id</code> and <code>user_tier</code> for each user.</p>`;
  if (kind === "idle") return html`<p class="note warn">${entry.active_def_id ? "It is not armed: the runtime has not taken it yet." : "No version of it is active, so it does not fire."}</p>`;
  if (kind === "paused") return html`<p class="note warn">Its times pass without a run while it is paused.</p>`;
  if (entry.state?.last_status === "failed" && entry.state.last_error) return html`<p class="note bad">The last run failed: <bdi>${entry.state.last_error.slice(0, 500)}</bdi></p>`;
  return null;
}

function Figures({ state, kind }) {
  const isWaiting = kind === "active";
  return html`<dl class="figures">
    <div><dt>Next</dt><dd>${isWaiting ? html`<${Countdown} at=${state.next_run_at} />` : html`<span class="dim">–</span>`}</dd></div>
    <div><dt>Last run</dt><dd>${state.last_run_at ? html`<${Time} at=${state.last_run_at} relative />` : html`<span class="dim">none yet</span>`}</dd></div>
    <div><dt>Its outcome</dt><dd class="outcome">${state.last_run_id ? html`<a href=${link(`/runs/${state.last_run_id}`)}><${LastStatus} status=${state.last_status} why=${state.last_error} /></a>` : html`<span class="dim">–</span>`}</dd></div>
    <div><dt>Fires</dt><dd>${formatCount(state.fires)}${state.max_fires ? html` <small class="dim">of ${formatCount(state.max_fires)}</small>` : null}</dd></div>
    <div><dt>Runs that work</dt><dd>${formatCount(state.running.length)}</dd></div>
    <div title=${state.queued.join(", ")}><dt>Times that wait</dt><dd>${formatCount(state.queued.length)}</dd></div>
  </dl>`;
}

function About({ definition, def, tenant, entry }) {
  const prompt = promptText(definition.prompt);
  const credentials = [...Object.keys(definition.user_credentials ?? {}), ...Object.keys(definition.user_credentials_from_env ?? {})];
  const fact = (name, value) => (value ? html`<dt>${name}</dt><dd>${value}</dd>` : null);
  return html`<dl class="facts">
    ${fact("Agent", html`<a href=${link(`/library/agent/${encodeURIComponent(definition.agent)}`, { tenant })}><bdi>${definition.agent}</bdi></a>`)}
    ${fact("Prompt", prompt ? html`<bdi class="text">${prompt.length > 600 ? `${prompt.slice(0, 600)}…` : prompt}</bdi>` : html`<span class="dim">none</span>`)}
    ${fact("For", definition.user_id ? html`<bdi>${definition.user_id}</bdi>${definition.user_tier ? html` <span class="dim">tier ${definition.user_tier}</span>` : null}` : html`<span class="dim">nobody's user</span>`)}
    ${Object.entries(definition.user_tier_schedules ?? {}).map(([tier, times]) => html`<dt key=${tier}>Tier ${tier}</dt><dd><code>${times}</code></dd>`)}
    ${fact("Overlap", OVERLAP[definition.overlap ?? "skip"])}
    ${fact("Catch-up", catchUpWords(definition.catch_up_max ?? 1))}
    ${fact("Put off", definition.jitter_ms ? `Each time by up to ${formatCount(definition.jitter_ms)} ms, always the same for one time.` : "")}
    ${fact("Credentials", credentials.length ? credentials.map((one) => html`<${Chip} key=${one}>${one}<//> `) : "")}
    ${fact("Afterwards", definition.on_complete?.length ? html`<ol class="hooks">${definition.on_complete.map((hook, at) => html`<li key=${at}>${hookWords(hook)}</li>`)}</ol>` : "")}
    ${fact("Version", html`<${Id} id=${def} short=${0} href=${link(`/library/version/${encodeURIComponent(def)}`, { tenant })} />`)}
    ${may("substrate:admin") ? fact("Records", html`<${RecordsLink} aggregate=${`schedule:${entry.tenant_id}/${entry.name}`} label="all its changes in the log" />`) : null}
    ${fact("Declared", entry.source === "static-only" ? "in a configuration file" : entry.source === "both" ? "here, over one of a file" : "here")}
    ${fact("Tenant", html`<bdi>${entry.tenant_id || "shared"}</bdi>`)}
  </dl>`;
}

function Pause({ name, def, onClose, onDone }) {
  const [until, setUntil] = useState("");
  const action = useAction();
  const problem = until && new Date(until).getTime() <= Date.now() ? "Give a time that is ahead." : "";
  const pause = async () => {
    const at = until ? new Date(until).toISOString() : "";
    if ((await action.run(() => schedules.pause(def, at))) === false) return;
    toast(`${name} is paused.`);
    onDone();
  };
  useEffect(() => action.clear(), [until]);
  return html`<${Dialog} title=${`Pause ${name}`} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="pause" isBusy=${action.isBusy} isDisabled=${Boolean(problem)} onClick=${pause}>Pause<//>`}>
    <p>Its times pass without a run. Runs that work go on, and Run now works.</p>
    <${Field} label="Until" type="datetime-local" value=${until} onInput=${setUntil} error=${problem} hint="In your time zone. Empty: until it is resumed." />
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
