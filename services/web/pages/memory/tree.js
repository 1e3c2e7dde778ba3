// The scopes that have keys, by kind, with their sizes.
import { html, useEffect, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, Field } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { ErrorState, Loading } from "../../components/states.js";
import { formatBytes, formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, navigate } from "../../router.js";
import { SCOPES, pathOf } from "./model.js";

const EVERY_MS = 15_000;
const SHOWN = 200;
const LISTED = ["agent", "user", "tenant"];

/** @param {{chosen: {scope: string, id: string} | null, tenant: string, round: number, isFolded: boolean}} properties isFolded: closed in a narrow window */
export function ScopeTree({ chosen, tenant, round, isFolded }) {
  const [text, setText] = useState("");
  const all = useResource(
    async (signal) => Object.fromEntries(await Promise.all(LISTED.map(async (scope) => [scope, (await memory.scopeIds(scope, { tenant }, { signal })).scope_ids]))),
    [tenant, round],
    { everyMs: EVERY_MS },
  );
  const [isOpen, setOpen] = useState(!isFolded);
  useEffect(() => setOpen(!isFolded), [chosen?.scope, chosen?.id]);
  return html`<nav class=${`card memory-tree${isOpen ? " open" : ""}`} aria-label="Scopes">
    <button type="button" class="memory-tree-fold" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><${Icon} name=${isOpen ? "chevron-down" : "chevron-right"} /> Scopes</button>
    <div class="memory-tree-inside">
      <input type="search" aria-label="Search scopes" placeholder="Search scopes" value=${text} onInput=${(event) => setText(event.currentTarget.value)} />
      ${all.data === undefined
        ? all.error
          ? html`<${ErrorState} error=${all.error} onRetry=${all.reload} compact />`
          : html`<${Loading} rows=${8} label="Loading scopes" />`
        : html`${all.error && all.error.status !== 0 ? html`<${ErrorState} error=${all.error} onRetry=${all.reload} compact />` : null}
            ${LISTED.map((scope) => html`<${Group} key=${scope} scope=${scope} rows=${all.data[scope]} text=${text} chosen=${chosen} tenant=${tenant} />`)}`}
      <${OpenScope} tenant=${tenant} />
    </div>
  </nav>`;
}

function Group({ scope, rows, text, chosen, tenant }) {
  const [most, setMost] = useState(SHOWN);
  const wanted = text.trim().toLowerCase();
  const about = SCOPES[scope];
  const tab = here.value.query.get("tab") ?? "";
  const to = (id) => link(pathOf(scope, id), { tenant, tab: tab === "changes" ? "" : tab });
  if (scope === "tenant") {
    const of = rows[0] ?? { key_count: 0, bytes: 0 };
    return html`<section><h2 title=${about.about}><${Icon} name=${about.icon} size=${14} /> ${about.title}</h2>
      <ul><${Row} href=${to("")} name="the tenant" of=${of} isChosen=${chosen?.scope === "tenant"} /></ul>
    </section>`;
  }
  const found = wanted ? rows.filter((row) => row.scope_id.toLowerCase().includes(wanted)) : rows;
  return html`<section>
    <h2 title=${about.about}><${Icon} name=${about.icon} size=${14} /> ${about.title} <small class="count">${formatCount(rows.length)}</small></h2>
    ${found.length
      ? html`<ul>${found.slice(0, most).map((row) => html`<${Row} key=${row.scope_id} href=${to(row.scope_id)} name=${row.scope_id} of=${row} isChosen=${chosen?.scope === scope && chosen.id === row.scope_id} />`)}</ul>`
      : html`<p class="hint">${rows.length ? "None has this in its name." : `No ${scope} has keys yet.`}</p>`}
    ${found.length > most ? html`<button class="link" type="button" onClick=${() => setMost(most + 1_000)}>${formatCount(found.length - most)} more</button>` : null}
  </section>`;
}

function Row({ href, name, of, isChosen }) {
  return html`<li><a href=${href} aria-current=${isChosen ? "true" : undefined} title=${name}>
    <bdi>${name}</bdi><span class="number" title=${`${formatCount(of.bytes)} bytes`}>${formatCount(of.key_count)} · ${formatBytes(of.bytes)}</span>
  </a></li>`;
}

/** Goes to a scope that is not listed: one without keys, or the database of a run. */
function OpenScope({ tenant }) {
  const [scope, setScope] = useState("user");
  const [id, setId] = useState("");
  const open = (event) => {
    event.preventDefault();
    if (id.trim()) navigate(link(pathOf(scope, id.trim()), { tenant }).slice("/ui".length));
  };
  return html`<details class="memory-open"><summary>Open another scope</summary>
    <form onSubmit=${open}>
      <${Field} label="Kind" value=${scope} onInput=${setScope} options=${["user", "agent", "run"]} />
      <${Field} label=${SCOPES[scope].id} value=${id} onInput=${setId} />
      <${Button} small type="submit" isDisabled=${!id.trim()}>Open<//>
    </form>
  </details>`;
}
