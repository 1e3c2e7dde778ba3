// A small form for a schedule: an agent, a prompt, and times whose next instants are shown while one types.
import { html, useEffect, useState } from "../../ui.js";
import { agents, library, schedules } from "../../api.js";
import { Button, Field } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { ErrorState } from "../../components/states.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { link } from "../../router.js";
import { NextTimes } from "./times.js";
import { OVERLAP, overlayOf } from "./model.js";

const PRESETS = [
  ["0 * * * *", "Every hour"],
  ["0 9 * * 1-5", "Weekdays at 9"],
  ["0 3 * * *", "Every night at 3"],
  ["0 9 * * 1", "Mondays at 9"],
  ["0 0 1 * *", "Month's first day"],
  ["@every 15m", "Every 15 minutes"],
];
const SHOWN = 5;
const PAUSE_MS = 250;
const OWN_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const ZONES = typeof Intl.supportedValuesOf === "function" ? Intl.supportedValuesOf("timeZone") : [OWN_ZONE];

/** A value once it has not changed for a moment. @template T @param {T} value */
function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), PAUSE_MS);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

/** @param {{tenant: string, onClose: () => void, onDone: (name: string) => void}} properties */
export function NewSchedule({ tenant, onClose, onDone }) {
  const [form, setForm] = useState({ name: "", agent: "", times: "0 9 * * 1-5", timezone: OWN_ZONE || "UTC", prompt: "", user_id: "", overlap: "skip" });
  const set = (key) => (value) => setForm({ ...form, [key]: value });
  const runnable = useResource(() => agents.runnable(), []);
  const action = useAction();
  const isEvery = form.times.trim().startsWith("@every");
  const asked = useSettled(`${form.times.trim()}\n${isEvery ? "" : form.timezone.trim()}`);
  const preview = useResource(
    (signal) => {
      const [times, timezone] = asked.split("\n");
      return times ? schedules.previewTimes({ times, timezone, count: SHOWN }, { signal }) : Promise.resolve(null);
    },
    [asked],
  );
  const save = async () => {
    const name = form.name.trim();
    const made = await action.run(() => library.operate("schedule", { op: "create", name, overlay: overlayOf(form) }, { tenant }));
    if (!made) return;
    toast(`${name} is created; it fires at its times.`);
    onDone(name);
  };
  const isReady = form.name.trim() && form.agent.trim() && form.times.trim() && !preview.error;
  return html`<${Dialog} wide title="New schedule" onClose=${onClose} actions=${html`<a class="grow" href=${link("/library/create/schedule", { tenant })}>All fields, as a definition</a><${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="save" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${save}>Create it<//>`}>
    <div class="fields two">
      <${Field} label="Name" required autofocus value=${form.name} onInput=${set("name")} placeholder="morning-report" />
      <${Field} label="Agent" required value=${form.agent} onInput=${set("agent")} list=${(runnable.data?.agents ?? []).map((one) => one.name)} />
    </div>
    <${Field} label="Prompt" rows=${3} value=${form.prompt} onInput=${set("prompt")} placeholder="What the agent is asked each time" />
    <div class="times-form">
      <div class="fields">
        <${Field} label="Times" required code value=${form.times} onInput=${set("times")} error=${preview.error?.message} hint=${html`Minute, hour, day of the month, month, day of the week; or <code>@hourly</code>, <code>@every 90m</code>.`} />
        <div class="chips">${PRESETS.map(([times, word]) => html`<${Button} small isPressed=${form.times.trim() === times} onClick=${() => set("times")(times)} key=${times}>${word}<//>`)}</div>
        ${isEvery ? null : html`<${Field} label="Time zone" value=${form.timezone} onInput=${set("timezone")} list=${ZONES} />`}
      </div>
      <section aria-label="Next times" aria-live="polite">
        <h3>It would fire</h3>
        ${preview.data ? html`<${NextTimes} preview=${preview.data} isShort />` : preview.error ? html`<p class="hint">These are no times yet.</p>` : html`<p class="hint">Reading…</p>`}
      </section>
    </div>
    <div class="fields two">
      <${Field} label="For the user" value=${form.user_id} onInput=${set("user_id")} hint="Whose runs they are; empty: nobody's." />
      <${Field} label="While a run of it works" value=${form.overlap} onInput=${set("overlap")} options=${[{ value: "skip", title: "skip the time" }, { value: "queue_one", title: "let one time wait" }, { value: "cancel", title: "cancel that run" }, { value: "allow", title: "run both" }]} hint=${OVERLAP[form.overlap]} />
    </div>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
