// Forms that make a token and that rotate one. Both show its text once.
import { html, useState } from "../../ui.js";
import { access } from "../../api.js";
import { Button, Checkbox, Field } from "../../components/controls.js";
import { Dialog, ShownOnce } from "../../components/dialog.js";
import { ErrorState } from "../../components/states.js";
import { useAction } from "../../resource.js";
import { me } from "../../session.js";
import { toRfc3339 } from "../../values.js";
import { SCOPES, bodyOf } from "./model.js";

/** Grace periods of a rotation, in seconds. */
const GRACES = [{ value: "", title: "as the settings say" }, { value: "0", title: "ends at once" }, { value: "3600", title: "one hour more" }, { value: "86400", title: "one day more" }, { value: "604800", title: "one week more" }, { value: "2592000", title: "30 days more" }];

/** @param {{made: Api.TokenMade, onClose: () => void}} properties */
function Made({ made, onClose }) {
  return html`<${ShownOnce} title=${`The token ${made.name} of ${made.tenant_id}`} secret=${made.token ?? ""} label="Copy the token" onClose=${onClose}>It has the scopes <span class="mono">${made.allowed_scopes.join(" ")}</span>.<//>`;
}

/** @param {{tenant: string, onClose: () => void, onDone: () => void}} properties */
export function CreateDialog({ tenant, onClose, onDone }) {
  const [form, setForm] = useState({ name: "", tenant_id: tenant || me.value?.tenant_id || "", subject: "", expires: "", import_token: "", supersede_shared: false });
  const [scopes, setScopes] = useState(/** @type {string[]} */ ([]));
  const [made, setMade] = useState(/** @type {Api.TokenMade | null} */ (null));
  const action = useAction();
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const choose = (scope) => (isChosen) => setScopes((before) => (isChosen ? [...before, scope] : before.filter((one) => one !== scope)));
  const isReady = Boolean(form.name.trim() && form.tenant_id.trim() && scopes.length);
  const create = async () => {
    if (!isReady) return;
    const { expires, ...fields } = form;
    const answer = await action.run(() => access.token({ op: "create", scopes, ...bodyOf({ ...fields, expires_at: toRfc3339(expires) }) }));
    if (answer === false) return;
    setMade(answer);
    onDone();
  };
  if (made?.token) return html`<${Made} made=${made} onClose=${onClose} />`;
  return html`<${Dialog} title="New token" onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} isDisabled=${!isReady} onClick=${create}>Make it<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), create())}>
      <div class="fields two">
        <${Field} label="Name" value=${form.name} onInput=${set("name")} required placeholder="ci" />
        <${Field} label="Tenant" value=${form.tenant_id} onInput=${set("tenant_id")} required placeholder="acme" />
      </div>
      <fieldset class="choices"><legend>Scopes <span class="dim" aria-hidden="true">*</span></legend>
        ${SCOPES.map(([scope, meaning]) => html`<${Checkbox} key=${scope} label=${html`<span class="mono">${scope}</span>`} checked=${scopes.includes(scope)} onChange=${choose(scope)} hint=${meaning} />`)}
      </fieldset>
      <details class="advanced"><summary>More</summary><div class="inside fields">
        <${Field} label="Subject" value=${form.subject} onInput=${set("subject")} placeholder=${`tok-${form.name.trim() || "name"}`} hint="Whose runs and data it means." />
        <${Field} label="Ends" type="datetime-local" value=${form.expires} onInput=${set("expires")} hint="Empty: when it is retired." />
        <${Field} label="Text of your own" type="password" value=${form.import_token} onInput=${set("import_token")} hint="16 characters or more. Empty: a random one." />
        ${scopes.includes("substrate:admin") ? html`<${Checkbox} label="End the shared token" checked=${form.supersede_shared} onChange=${set("supersede_shared")} hint="LOOMLOG_AUTH_TOKEN gives no access from now on." />` : null}
      </div></details>
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}

/** @param {{name: Api.TokenNames["names"][number], onClose: () => void, onDone: () => void}} properties */
export function RotateDialog({ name, onClose, onDone }) {
  const [form, setForm] = useState({ grace: "", expires: "" });
  const [made, setMade] = useState(/** @type {Api.TokenMade | null} */ (null));
  const action = useAction();
  const set = (field) => (value) => setForm((before) => ({ ...before, [field]: value }));
  const rotate = async () => {
    const body = { op: "rotate", def_id: name.active_def_id, ...(form.grace === "" ? {} : { grace_seconds: Number(form.grace) }), ...bodyOf({ expires_at: toRfc3339(form.expires) }) };
    const answer = await action.run(() => access.token(body));
    if (answer === false) return;
    setMade(answer);
    onDone();
  };
  if (made?.token) return html`<${Made} made=${made} onClose=${onClose} />`;
  return html`<${Dialog} title=${`Rotate ${name.name}`} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} onClick=${rotate}>Rotate<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), rotate())}>
      <p>It gets another text, with the same scopes.</p>
      <${Field} label="The text before" value=${form.grace} onInput=${set("grace")} options=${GRACES} />
      <${Field} label="The new one ends" type="datetime-local" value=${form.expires} onInput=${set("expires")} hint="Empty: when it is retired." />
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
