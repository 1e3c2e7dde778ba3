// The tenant that an administrator looks at: kept in the address as `tenant`; empty is the caller's own.
import { html, useEffect, useState } from "../ui.js";
import { here, setQuery } from "../router.js";
import { me } from "../session.js";
import { Button, Field } from "./controls.js";

/** Shown to administrators only. @param {{list?: string[], clears?: Record<string, string>, placeholder?: string}} properties placeholder: what an empty field means; list: values to choose from; clears: what of the address does not hold for another tenant */
export function TenantField({ list, clears = {}, placeholder = me.value?.tenant_id || "shared" }) {
  const tenant = here.value.query.get("tenant") ?? "";
  const [text, setText] = useState(tenant);
  useEffect(() => setText(tenant), [tenant]);
  if (!me.value?.is_admin) return null;
  return html`<form class="bar tenant-field" onSubmit=${(event) => (event.preventDefault(), setQuery({ ...clears, tenant: text.trim() }))}>
    <${Field} label="Tenant" inline value=${text} onInput=${setText} placeholder=${placeholder} list=${list} />
    ${text.trim() !== tenant ? html`<${Button} small type="submit">Show<//>` : null}
  </form>`;
}
