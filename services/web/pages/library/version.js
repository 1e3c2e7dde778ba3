// Goes from the id of a version to the page of its definition.
import { html, useEffect } from "../../ui.js";
import { library } from "../../api.js";
import { ErrorState, Loading } from "../../components/states.js";
import { useResource } from "../../resource.js";
import { here, navigate } from "../../router.js";
import { me } from "../../session.js";
import { definitionPath } from "./kinds.js";

/** @param {{id: string}} properties def_id */
export function VersionJump({ id }) {
  const tenant = here.value.query.get("tenant") ?? "";
  const version = useResource((signal) => library.version(id, { tenant }, { signal }), [id, tenant]);
  useEffect(() => {
    const found = version.data;
    if (!found) return;
    const query = new URLSearchParams({ v: found.def_id });
    const owner = tenant || (found.tenant_id && found.tenant_id !== me.value?.tenant_id ? found.tenant_id : "");
    if (owner) query.set("tenant", owner);
    navigate(`${definitionPath(found.kind, found.name)}?${query}`, { replace: true });
  }, [version.data]);
  if (version.error) return html`<${ErrorState} isPage error=${version.error} onRetry=${version.reload} />`;
  return html`<${Loading} label="Looking for the version" />`;
}
