// Stored credentials: their names. A value is set, and never shown again.
import { html, useState } from "../../ui.js";
import { access } from "../../api.js";
import { Button, Chip, Field } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { may, me } from "../../session.js";
import { toRfc3339 } from "../../values.js";
import { bodyOf } from "./model.js";

/** @typedef {Api.CredentialRows["credentials"][number]} Credential */
/** @typedef {{scope: string, scope_id: string}} Owner */

export default function Credentials() {
  const { query } = here.value;
  const tenant = query.get("tenant") ?? "";
  const owner = { scope: query.get("of") ?? "tenant", scope_id: query.get("id") ?? "" };
  const [asked, setAsked] = useState("");
  const [removed, setRemoved] = useState(/** @type {Credential | null} */ (null));
  const [edited, setEdited] = useState(/** @type {{name: string} | null} */ (null));
  const isComplete = owner.scope !== "agent" || Boolean(owner.scope_id);
  const list = useResource(
    async (signal) => (isComplete ? (/** @type {Api.CredentialRows} */ (await access.credential({ op: "list", ...bodyOf(owner) }, { tenant }, { signal }))).credentials : []),
    [tenant, owner.scope, owner.scope_id],
  );
  const remove = async () => {
    await access.credential({ op: "delete", name: removed?.name, ...bodyOf(owner) }, { tenant });
    toast(`${removed?.name} is deleted with its value.`);
    list.reload();
  };
  const rewrap = async () => {
    const { rewrapped, deleted } = await access.rewrap();
    toast(`${formatCount(rewrapped)} values are encrypted under the current key; ${formatCount(deleted)} left over are deleted.`);
  };
  return html`
    <div class="bar">
      <${OwnerFields} owner=${owner} />
      <${TenantField} />
      <span class="grow"></span>
      ${may("substrate:admin") ? html`<${Button} icon="rotate-ccw" onClick=${() => setAsked("rewrap")}>Encrypt again<//>` : null}
      <${Button} kind="primary" icon="plus" isDisabled=${!isComplete} onClick=${() => setEdited({ name: "" })}>Store a credential<//>
    </div>
    <section class="card" aria-label="Credentials"><header><h2>Credentials ${wordsOf(owner)}</h2><small class="dim">used as <code>$cred:name</code>; one named like a provider's <code>api_key_env</code> pays for its calls</small></header>
      <${Resource} of=${list}>${(/** @type {Credential[]} */ credentials) => html`<${PlainTable} label="Credentials" rows=${credentials} rowKey=${(/** @type {Credential} */ one) => one.name} columns=${columnsOf(setEdited, setRemoved)}
        empty=${isComplete ? html`<${Empty} icon="lock" title="There is no credential here" command="loomlog credentials set GITHUB_TOKEN"><p>The value is encrypted, and in no log, transcript or answer.</p><//>` : html`<${Empty} icon="bot" title="Name the agent" />`} />`}<//>
    </section>
    ${edited ? html`<${CredentialDialog} owner=${owner} tenant=${tenant} name=${edited.name} onClose=${() => setEdited(null)} onDone=${list.reload} />` : null}
    ${removed ? html`<${Confirm} title=${`Delete ${removed.name}?`} confirm="Delete" danger onConfirm=${remove} onClose=${() => setRemoved(null)}><p>Its value is gone. What refers to it fails from now on.</p><//>` : null}
    ${asked === "rewrap" ? html`<${Confirm} title="Encrypt all credentials again?" confirm="Encrypt again" onConfirm=${rewrap} onClose=${() => setAsked("")}><p>All values of all tenants are encrypted under the current <code>LOOMLOG_SECRET_KEY</code>. Afterwards <code>LOOMLOG_SECRET_KEY_PREVIOUS</code> can go.</p><//>` : null}
  `;
}

/** @param {Owner} owner */
const wordsOf = (owner) => (owner.scope === "tenant" ? "of the tenant" : owner.scope === "agent" ? html`of the agent <bdi>${owner.scope_id}</bdi>` : owner.scope_id ? html`of the user <bdi>${owner.scope_id}</bdi>` : "of your own");

/** Whose credentials are shown; kept in the address. @param {{owner: Owner}} properties */
function OwnerFields({ owner }) {
  const [text, setText] = useState(owner.scope_id);
  return html`<form class="bar" aria-label="Whose" onSubmit=${(event) => (event.preventDefault(), setQuery({ id: text.trim() }))}>
    <${Field} label="Of" inline value=${owner.scope} options=${[{ value: "tenant", title: "the tenant" }, { value: "user", title: "a user" }, { value: "agent", title: "an agent" }]} onInput=${(value) => (setText(""), setQuery({ of: value === "tenant" ? "" : value, id: "" }))} />
    ${owner.scope === "tenant" ? null : html`<${Field} label=${owner.scope === "user" ? "Subject" : "Agent"} inline value=${text} onInput=${setText} placeholder=${owner.scope === "user" ? me.value?.subject : "triage"} /><${Button} type="submit">Show<//>`}
  </form>`;
}

/** @param {(one: {name: string}) => void} onEdit @param {(one: Credential) => void} onRemove */
const columnsOf = (onEdit, onRemove) => [
  { key: "name", title: "Name", sort: (/** @type {Credential} */ one) => one.name, cell: (/** @type {Credential} */ one) => html`<bdi class="mono">${one.name}</bdi>` },
  { key: "stored", title: "Stored", sort: (/** @type {Credential} */ one) => one.updated_at, cell: (/** @type {Credential} */ one) => html`<${Time} at=${one.updated_at} relative />` },
  { key: "ends", title: "To be replaced", cell: (/** @type {Credential} */ one) => (one.expires_at ? html`<${Time} at=${one.expires_at} relative />${one.note ? html` <${Chip} tone="warn">${one.note}<//>` : null}` : html`<span class="dim">–</span>`) },
  {
    key: "act",
    title: html`<span class="spoken">Actions</span>`,
    align: /** @type {"right"} */ ("right"),
    cell: (/** @type {Credential} */ one) => html`<span class="actions right"><${Button} small label=${`Replace ${one.name}`} onClick=${() => onEdit(one)}>Replace<//><${Button} small icon="trash-2" label=${`Delete ${one.name}`} onClick=${() => onRemove(one)} /></span>`,
  },
];

/** @param {{owner: Owner, tenant: string, name: string, onClose: () => void, onDone: () => void}} properties name: of the credential that is replaced; "": a new one */
function CredentialDialog({ owner, tenant, name, onClose, onDone }) {
  const [form, setForm] = useState({ name, value: "", expires: "" });
  const action = useAction();
  const set = (field) => (value) => setForm((before) => ({ ...before, [field]: value }));
  const isReady = Boolean(form.name.trim() && form.value);
  const store = async () => {
    if (!isReady) return;
    // The value goes as it is: spaces around it may belong to it.
    const body = { op: "create", ...bodyOf({ ...owner, name: form.name, expires_at: toRfc3339(form.expires) }), value: form.value };
    if ((await action.run(() => access.credential(body, { tenant }))) === false) return;
    toast(`${form.name.trim()} is stored.`);
    onClose();
    onDone();
  };
  return html`<${Dialog} title=${name ? `Replace ${name}` : "Store a credential"} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${store}>Store<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), store())}>
      ${name ? null : html`<${Field} label="Name" value=${form.name} onInput=${set("name")} required placeholder="GITHUB_TOKEN" hint="1 to 64 letters, digits, _ and -." />`}
      <${Field} label="Value" value=${form.value} onInput=${set("value")} required rows=${4} code hint="It is not shown again, here or anywhere." />
      <${Field} label="To be replaced" type="datetime-local" value=${form.expires} onInput=${set("expires")} hint="A note only: it does not end by itself." />
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
