// Hooks: addresses that are asked before tool calls and told after them.
import { html, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Confirm, Dialog, ShownOnce } from "../../components/dialog.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatDuration } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { me } from "../../session.js";

const namesOf = (text) => text.split(/[\s,]+/).filter(Boolean);

export default function Hooks() {
  const list = useResource((signal) => operations.hooks({ signal }), []);
  const [isNew, setNew] = useState(false);
  const [removed, setRemoved] = useState(/** @type {any} */ (null));
  const remove = async () => {
    await operations.removeHook(removed.id);
    toast("The hook is removed; calls under way complete with it.");
    list.reload();
  };
  return html`
    <section class="card"><header><h2>Hooks</h2><small class="dim">in the order in which they are called</small><${Button} icon="plus" onClick=${() => setNew(true)}>Register<//></header>
      <${Resource} of=${list}>${({ hooks }) => html`<${PlainTable} label="Hooks" rows=${hooks} rowKey=${(hook) => hook.id}
        empty=${html`<${Empty} icon="link" title="There is no hook yet" command=${`curl -X POST ${location.origin}/v1/hooks -H 'authorization: Bearer ...' -H 'content-type: application/json' -d '{"owner": "security", "name": "review", "phase": "pre", "callback_url": "https://hooks.example.com/review"}'`}><p>A hook gets a signed request before a tool call, and allows, changes or denies it; or after the call, with its result.</p><//>`}
        columns=${[
          { key: "name", title: "Hook", cell: (hook) => html`<bdi>${hook.owner}/${hook.name}</bdi> <${Id} id=${hook.id} short=${6} />` },
          { key: "phase", title: "When", cell: (hook) => (hook.phase === "pre" ? "before the call" : "after the call") },
          { key: "url", title: "Address", cell: (hook) => html`<bdi class="wraps">${hook.callback_url}</bdi>` },
          { key: "agents", title: "Agents", cell: (hook) => (hook.agents?.length ? html`<bdi>${hook.agents.join(", ")}</bdi>` : html`<span class="dim">all</span>`) },
          { key: "tools", title: "Tools", cell: (hook) => (hook.tools?.length ? html`<bdi>${hook.tools.join(", ")}</bdi>` : html`<span class="dim">all</span>`) },
          { key: "fail", title: "Without an answer", cell: (hook) => html`<${Chip} tone=${hook.fail_mode === "closed" ? "warn" : ""}>${hook.fail_mode === "closed" ? "deny" : "allow"}<//> <small class="dim nowrap">after ${formatDuration(hook.timeout_ms)}</small>` },
          { key: "tenant", title: "Tenant", hidden: !me.value?.is_admin, cell: (hook) => (hook.tenant_id ? html`<bdi>${hook.tenant_id}</bdi>` : html`<span class="dim">all</span>`) },
          { key: "at", title: "Since", cell: (hook) => html`<${Time} at=${hook.registered_at} relative />` },
          { key: "act", title: html`<span class="spoken">Actions</span>`, align: "right", cell: (hook) => html`<${Button} small icon="trash-2" label=${`Remove ${hook.owner}/${hook.name}`} onClick=${() => setRemoved(hook)} />` },
        ]} />`}<//>
    </section>
    ${isNew ? html`<${RegisterDialog} onClose=${() => setNew(false)} onDone=${list.reload} />` : null}
    ${removed ? html`<${Confirm} title="Remove this hook?" confirm="Remove" danger onConfirm=${remove} onClose=${() => setRemoved(null)}><p><bdi>${removed.owner}/${removed.name}</bdi> is not called any more.${removed.phase === "pre" ? " What it would have denied is allowed from now on." : ""}</p><//>` : null}
  `;
}

function RegisterDialog({ onClose, onDone }) {
  const [form, setForm] = useState({ owner: "", name: "", phase: "pre", url: "", agents: "", tools: "", fail: "open", timeout: "5" });
  const [made, setMade] = useState(/** @type {any} */ (null));
  const action = useAction();
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const isReady = form.owner.trim() && form.name.trim() && form.url.trim() && Number(form.timeout) > 0;
  const register = async () => {
    if (!isReady) return;
    const body = { owner: form.owner.trim(), name: form.name.trim(), phase: form.phase, callback_url: form.url.trim(), fail_mode: form.fail, timeout_ms: Math.round(Number(form.timeout) * 1_000), agents: namesOf(form.agents), tools: namesOf(form.tools) };
    const answer = await action.run(() => operations.addHook(body));
    if (answer === false) return;
    onDone();
    setMade(answer);
  };
  const title = "The hook is registered";
  if (made?.signing_secret) return html`<${ShownOnce} title=${title} secret=${made.signing_secret} label="Copy the secret" onClose=${onClose}>With it your service checks the signature of each request.<//>`;
  if (made) return html`<${Dialog} title=${title} onClose=${onClose} actions=${html`<${Button} kind="primary" onClick=${onClose}>Close<//>`}><p>It replaces the earlier hook of this owner and name, and keeps its secret.</p><//>`;
  return html`<${Dialog} title="Register a hook" onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${register}>Register<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), register())}>
      <div class="fields two">
        <${Field} label="Owner" value=${form.owner} onInput=${set("owner")} required placeholder="security" />
        <${Field} label="Name" value=${form.name} onInput=${set("name")} required placeholder="review" hint="The same owner and name replaces it." />
      </div>
      <${Field} label="Address" type="url" value=${form.url} onInput=${set("url")} required placeholder="https://hooks.example.com/review" />
      <div class="fields two">
        <${Field} label="When" value=${form.phase} onInput=${set("phase")} options=${[{ value: "pre", title: "before the call" }, { value: "post", title: "after the call" }]} />
        <${Field} label="Without an answer" value=${form.fail} onInput=${set("fail")} options=${[{ value: "open", title: "allow the call" }, { value: "closed", title: "deny the call" }]} />
        <${Field} label="Longest wait, seconds" type="number" min="0.1" max="60" step="0.1" value=${form.timeout} onInput=${set("timeout")} />
      </div>
      <div class="fields two">
        <${Field} label="Agents" value=${form.agents} onInput=${set("agents")} hint="Names, with commas. Empty: all." />
        <${Field} label="Tools" value=${form.tools} onInput=${set("tools")} hint="Names, or beginnings with a star. Empty: all." />
      </div>
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
