// What differs between two versions: field by field as the server compares them, or as text line by line.
import { html, useEffect, useState } from "../../ui.js";
import { library } from "../../api.js";
import { Field } from "../../components/controls.js";
import { Difference } from "../../components/difference.js";
import { Json } from "../../components/json.js";
import { Resource } from "../../components/states.js";
import { printJson } from "../../exact_json.js";
import { useResource } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { versionTitle } from "./lineage.js";
import { editable, isYamlLoaded, loadYaml, toYaml } from "./text.js";

/** @param {{version: any, versions: import("./lineage.js").Version[], active: string | null, tenant: string}} properties version: as GET /v1/_definitions/{def_id} says it */
export function Changes({ version, versions, active, tenant }) {
  const query = here.value.query;
  const chosen = query.get("with") ?? "";
  const isText = query.get("as") === "text";
  const parent = version.parent_def_id ?? "";
  const others = versions.filter((one) => one.def_id !== version.def_id);
  const fallback = parent || (active && active !== version.def_id ? active : (others[0]?.def_id ?? ""));
  const other = chosen && chosen !== version.def_id ? chosen : fallback;
  if (!other) return html`<p class="dim">There is no other version to compare this one with.</p>`;
  const title = (one) => versionTitle(one) + (one.def_id === active ? ", active" : "") + (one.def_id === parent ? ", its parent" : "");
  return html`<div class="stack">
    <div class="bar">
      <${Field} label="Compared with" inline value=${other} onInput=${(value) => setQuery({ with: value })} options=${[...others.map((one) => ({ value: one.def_id, title: title(one) })), ...(others.some((one) => one.def_id === other) ? [] : [{ value: other, title: other }])]} />
      <${Field} label="Shown" inline value=${isText ? "text" : "fields"} onInput=${(value) => setQuery({ as: value === "text" ? "text" : "" })} options=${[{ value: "fields", title: "field by field" }, { value: "text", title: "as text" }]} />
    </div>
    ${isText ? html`<${AsText} version=${version} other=${other} tenant=${tenant} />` : html`<${ByField} version=${version} other=${other} tenant=${tenant} />`}
  </div>`;
}

function ByField({ version, other, tenant }) {
  const answer = useResource((signal) => library.diff(other, { to: version.def_id, tenant }, { signal }), [other, version.def_id, tenant]);
  return html`<${Resource} of=${answer}>${(diff) =>
    diff.changes.length
      ? html`<div class="changes">${shownChanges(diff.changes).map((change) => html`<section key=${change.field}><h3><code>${change.field}</code></h3>${change.diff ? html`<${Lines} lines=${change.diff} label=${change.field} />` : html`<${Pair} before=${change.before} after=${change.after} />`}</section>`)}</div>`
      : html`<p class="dim">Both say the same.</p>`}<//>`;
}

/** The prompt without the bodies of skills usually changes as the prompt does: then it is shown once. @param {Api.FieldChange[]} changes */
function shownChanges(changes) {
  const said = (field) => printJson({ ...changes.find((one) => one.field === field), field: "" });
  return said("system_prompt") === said("system_prompt_base") ? changes.filter((one) => one.field !== "system_prompt_base") : changes;
}

/** The lines of a unified diff. */
function Lines({ lines, label }) {
  const kinds = { "+": "added", "-": "removed", "@": "skipped" };
  return html`<div class="difference" role="group" aria-label=${`Difference of ${label}`}>${lines.map((line, at) => {
    const kind = kinds[line[0]] ?? "same";
    const sign = { added: "+ ", removed: "− ", skipped: "", same: "  " }[kind];
    return html`<div class=${kind} key=${at}>${sign}<bdi>${kind === "skipped" ? line : line.slice(1)}</bdi></div>`;
  })}</div>`;
}

function Pair({ before, after }) {
  return html`<div class="difference pair"><div class="removed"><span class="spoken">before: </span><${Side} value=${before} /></div><div class="added"><span class="spoken">after: </span><${Side} value=${after} /></div></div>`;
}

function Side({ value }) {
  if (value === null || value === undefined) return html`<span class="dim">not set</span>`;
  if (typeof value !== "object") return html`<bdi>${String(value)}</bdi>`;
  if (Array.isArray(value) && value.every((one) => typeof one !== "object")) return html`<bdi>${value.length ? value.join(", ") : "none"}</bdi>`;
  return html`<${Json} value=${value} open=${3} />`;
}

function AsText({ version, other, tenant }) {
  const [isReady, setReady] = useState(isYamlLoaded());
  useEffect(() => {
    if (!isReady) loadYaml().then(() => setReady(true));
  }, []);
  const before = useResource((signal) => library.version(other, { tenant }, { signal }), [other, tenant]);
  return html`<${Resource} of=${before}>${(one) => (isReady ? html`<${Difference} before=${toYaml(editable(one.definition), { sorted: true })} after=${toYaml(editable(version.definition), { sorted: true })} label="Difference of the definitions as text" />` : null)}<//>`;
}
