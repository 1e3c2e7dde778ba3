// The tenant that an administrator looks at: kept in the address as `tenant`.
import { html, useEffect, useState } from "../ui.js";
import { here, setQuery } from "../router.js";
import { me } from "../session.js";
import { Button, Field } from "./controls.js";

/** Nothing for callers that have one tenant. @param {{placeholder?: string}} properties placeholder: what an empty field means */
export function TenantField({ placeholder }) {
  const tenant = here.value.query.get("tenant") ?? "";
  const [text, setText] = useState(tenant);
  useEffect(() => setText(tenant), [tenant]);
  if (!me.value?.is_admin) return null;
  return html`<form class="bar tenant-field" onSubmit=${(event) => (event.preventDefault(), setQuery({ tenant: text.trim() }))}>
    <${Field} label="Tenant" inline value=${text} onInput=${setText} placeholder=${placeholder ?? (me.value.tenant_id || "every one")} />
    ${text.trim() !== tenant ? html`<${Button} small type="submit">Show<//>` : null}
  </form>`;
}
