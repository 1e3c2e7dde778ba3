// A fork of the run: from which moment, and what is different from there on. The new run opens when it has begun.
import { html, useMemo, useRef, useState } from "../../ui.js";
import { agents, newKey, runs } from "../../api.js";
import { Button, CopyButton, Field } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { ErrorState } from "../../components/states.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { here, navigate } from "../../router.js";
import { startRun } from "../start/submit.js";
import { systemText } from "./context_model.js";
import { EMPTY_FORK, bodyOf, commandOf, forkPoints, problemsOf } from "./fork_model.js";

const OTHER = "other";

/** @param {{history: import("./history.js").History, onClose: () => void}} properties */
export function ForkDialog({ history, onClose }) {
  const { run, events } = history;
  const points = useMemo(() => forkPoints(events), [events]);
  // Where the person is: the moment of the slider, else the turn whose context is looked at, else the newest record.
  const turn = Number(here.value.query.get("turn")) || 0;
  const first = history.at ?? points.find((point) => turn && point.turn === turn)?.seq ?? points[0]?.seq ?? 1;
  const [form, setForm] = useState({ ...EMPTY_FORK, at: first });
  const [isTyped, setTyped] = useState(history.at !== null && !points.some((point) => point.seq === history.at));
  const [wasSent, setSent] = useState(false);
  const key = useRef(newKey());
  const action = useAction();
  const change = (changes) => {
    key.current = newKey();
    setForm((before) => ({ ...before, ...changes }));
  };
  // What the run was at that moment: whether it may be forked there, and what the prompt was.
  const state = useResource((signal) => runs.state(run.run_id, form.at, { signal }), [run.run_id, form.at]);
  const runnable = useResource(() => agents.runnable(), []);
  const known = runnable.data?.agents ?? [];
  const models = useMemo(() => [...new Set(known.flatMap((one) => one.model || []))].sort(), [known]);
  const providers = useMemo(() => [...new Set(known.flatMap((one) => one.provider || []))].sort(), [known]);
  const at = state.data;
  const problems = problemsOf(form, Boolean(at?.fork_needs_prompt));
  const canSend = at?.forkable && !Object.keys(problems).length;
  const command = commandOf(run.run_id, form);
  const shown = (name) => (wasSent ? problems[name] : undefined);

  const send = async (event) => {
    event?.preventDefault();
    setSent(true);
    if (!canSend) return;
    const started = await action.run(() => startRun(bodyOf(form), key.current, runs.forkPath(run.run_id)));
    if (!started) return;
    onClose();
    toast("The fork has begun.");
    navigate(`/runs/${encodeURIComponent(started.run_id)}`);
  };
  const choosePoint = (value) => (value === OTHER ? setTyped(true) : (setTyped(false), change({ at: Number(value) })));
  const lastSeq = events.length;
  return html`<${Dialog} title="Fork the run" wide onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" icon="git-fork" isBusy=${action.isBusy} isDisabled=${state.isLoading || (at && !at.forkable)} onClick=${send}>Start the fork<//>`}>
    <form class="fields" onSubmit=${send}>
      <p class="dim">A new run shares the events up to a moment and goes on from there by itself; this run stays as it is.</p>
      <${Field} label="From" value=${isTyped ? OTHER : String(form.at)} onInput=${choosePoint} autofocus options=${[...points.map((point) => ({ value: String(point.seq), title: `${point.title} (shares 1 to ${point.seq})` })), { value: OTHER, title: "After another record…" }]} />
      ${isTyped ? html`<${Field} label="Last shared record (seq)" type="number" min="1" max=${lastSeq} value=${String(form.at)} onInput=${(value) => /^\d+$/.test(value) && Number(value) >= 1 && change({ at: Math.min(Number(value), lastSeq) })} hint=${`From 1 to ${lastSeq}.`} />` : null}
      ${state.error ? html`<${ErrorState} error=${state.error} compact onRetry=${state.reload} />` : null}
      ${at && !at.forkable ? html`<p class="note warn" role="status">A run cannot be forked there: <bdi>${at.not_forkable}</bdi>. Choose another moment.</p>` : null}
      <${Field} label=${at?.fork_needs_prompt ? "What comes next" : "What comes next (may be empty)"} rows=${3} value=${form.prompt} onInput=${(prompt) => change({ prompt })} required=${Boolean(at?.fork_needs_prompt)} error=${shown("prompt")} hint=${at?.fork_needs_prompt ? "The model has already answered there." : "Without it the fork makes the next call of the model as the run did."} />
      <div class="fields two">
        <${Field} label="Agent" value=${form.agent} onInput=${(agent) => change({ agent })} options=${[{ value: "", title: `${run.agent}` }, ...known.filter((one) => one.name !== run.agent).map((one) => ({ value: one.name, title: one.name }))]} />
        <${Field} label="Definition" value=${form.definition} onInput=${(definition) => change({ definition })} options=${form.agent ? [{ value: form.definition, title: "as it is configured now" }] : [{ value: "", title: "the one this run is pinned to" }, { value: "current", title: "as it is configured now" }]} />
        <${Field} label="Model" value=${form.model} onInput=${(model) => change({ model })} list=${models} placeholder=${at?.definition?.model ?? ""} code />
        <${Field} label="Provider" value=${form.provider} onInput=${(provider) => change({ provider })} list=${providers} placeholder=${at?.definition?.provider ?? ""} code />
      </div>
      <details class="fork-more">
        <summary>System prompt and parameters</summary>
        <div class="fields">
          <${Field} label="System prompt" rows=${6} code value=${form.systemPrompt} onInput=${(systemPrompt) => change({ systemPrompt })} placeholder="as it is" hint=${at?.system?.length && !form.systemPrompt ? html`<button class="link" type="button" onClick=${() => change({ systemPrompt: (at.system ?? []).map(systemText).join("\n\n") })}>Begin with the present one</button>` : "Empty: as it is."} />
          <div class="fields two">
            <${Field} label="Effort" value=${form.effort} onInput=${(effort) => change({ effort })} options=${[{ value: "", title: "as it is" }, "low", "medium", "high"]} />
            <${Field} label="Most output tokens" value=${form.maxTokens} onInput=${(maxTokens) => change({ maxTokens })} placeholder=${String(at?.definition?.max_tokens || "as it is")} error=${shown("maxTokens")} />
            <${Field} label="Temperature" value=${form.temperature} onInput=${(temperature) => change({ temperature })} placeholder=${String(at?.definition?.sampling?.temperature ?? "as it is")} error=${shown("temperature")} />
            <${Field} label="Waits for input at its end" value=${form.interactive} onInput=${(interactive) => change({ interactive })} options=${[{ value: "", title: "as this run" }, { value: "yes", title: "yes" }, { value: "no", title: "no: it completes" }]} />
          </div>
        </div>
      </details>
      ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
      <p class="command"><code>${command}</code><${CopyButton} text=${command} label="Copy the command" /></p>
      <button type="submit" class="spoken" tabindex="-1" aria-hidden="true">Start the fork</button>
    </form>
  <//>`;
}
