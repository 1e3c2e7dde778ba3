// Tokens of all tenants by name: made, rotated and retired by administrators.
import { html, useState } from "../../ui.js";
import { access } from "../../api.js";
import { Button, Chip, Id } from "../../components/controls.js";
import { Confirm, Dialog } from "../../components/dialog.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable, Table } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useResource } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { CreateDialog, RotateDialog } from "./token_dialogs.js";
import { TokenState } from "./token_state.js";

/** @typedef {Api.TokenNames["names"][number]} Name */
/** @typedef {Api.TokenVersions["tokens"][number]} Token */
/** @typedef {{what: string, name?: Name, id?: string}} Asked id: of a text that is retired; without one the newest */

export default function Tokens() {
  const { query } = here.value;
  const tenant = query.get("tenant") ?? "";
  const text = query.get("q") ?? "";
  const [asked, setAsked] = useState(/** @type {Asked} */ ({ what: "" }));
  const list = useResource((signal) => access.tokenNames({ tenant_id: tenant }, { signal }), [tenant]);
  const wanted = text.trim().toLowerCase();
  const close = () => setAsked({ what: "" });
  const retire = async () => {
    await access.token({ op: "retire", def_id: asked.id ?? asked.name?.active_def_id });
    toast(`${asked.name?.name} has ended.`);
    list.reload();
  };
  return html`
    <div class="bar">
      <input class="search" type="search" aria-label="Search tokens" placeholder="Search name or tenant" value=${text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
      <${TenantField} placeholder="all" />
      <span class="grow"></span>
      <${Button} kind="primary" icon="plus" onClick=${() => setAsked({ what: "create" })}>New token<//>
    </div>
    <${Resource} of=${list}>${(/** @type {Api.TokenNames} */ { names }) => html`<${Table}
      label="Tokens"
      rows=${names.filter((name) => !wanted || `${name.tenant_id} ${name.name}`.toLowerCase().includes(wanted))}
      rowKey=${(name) => `${name.tenant_id}/${name.name}`}
      onOpen=${(name) => setAsked({ what: "show", name })}
      height="min(65vh, 720px)"
      empty=${names.length
        ? html`<${Empty} icon="search" title="No token fits the search"><p class="actions"><${Button} onClick=${() => setQuery({ q: "" })}>Show all<//></p><//>`
        : html`<${Empty} icon="shield-check" title="There is no token yet" command="loomlog tokens create --name ci --tenant acme --scopes runs:create,runs:read"><p>Tokens that are made here end without a restart. Those of configuration files go on and are not listed.</p><//>`}
      columns=${columnsOf(setAsked)}
    />`}<//>
    ${asked.what === "create" ? html`<${CreateDialog} tenant=${tenant} onClose=${close} onDone=${list.reload} />` : null}
    ${asked.what === "show" && asked.name ? html`<${Versions} name=${asked.name} onAsk=${setAsked} onClose=${close} />` : null}
    ${asked.what === "rotate" && asked.name ? html`<${RotateDialog} name=${asked.name} onClose=${close} onDone=${list.reload} />` : null}
    ${asked.what === "retire" ? html`<${Confirm} title=${`Retire the token ${asked.name?.name}?`} confirm="Retire" danger onConfirm=${retire} onClose=${close}><p>It gives no access any more, in any process, within a second. It does not come back; another token may have its name.</p>${!asked.id && (asked.name?.live_version_count ?? 0) > 1 ? html`<p>This ends its newest text. One from before a rotation goes on until its grace ends; its name leads to it.</p>` : null}<//>` : null}
  `;
}

/** @param {(asked: Asked) => void} onAsk */
const columnsOf = (onAsk) => [
  { key: "name", title: "Name", width: "minmax(9rem, 1.2fr)", cell: (/** @type {Name} */ name) => html`<button type="button" class="link" onClick=${() => onAsk({ what: "show", name })}><bdi>${name.name}</bdi></button>` },
  { key: "tenant", title: "Tenant", width: "minmax(7rem, 1fr)", cell: (/** @type {Name} */ name) => html`<bdi>${name.tenant_id}</bdi>` },
  { key: "state", title: "State", width: "6.5rem", cell: (/** @type {Name} */ name) => (name.live_version_count ? html`<${Chip} tone="good">in force<//>` : html`<${Chip}>ended<//>`) },
  { key: "texts", title: "Texts", width: "9rem", cell: (/** @type {Name} */ name) => html`<span title="Each rotation gives a token another text">${formatCount(name.live_version_count)} of ${formatCount(name.version_count)} in force</span>` },
  { key: "changed", title: "Changed", width: "7rem", align: /** @type {"right"} */ ("right"), cell: (/** @type {Name} */ name) => html`<${Time} at=${name.last_updated} relative />` },
  {
    key: "act",
    title: html`<span class="spoken">Actions</span>`,
    width: "11rem",
    align: /** @type {"right"} */ ("right"),
    cell: (/** @type {Name} */ name) =>
      name.active_def_id
        ? html`<span class="actions right nowrap-row"><${Button} small label=${`Rotate ${name.name}`} onClick=${() => onAsk({ what: "rotate", name })}>Rotate<//><${Button} small label=${`Retire ${name.name}`} onClick=${() => onAsk({ what: "retire", name })}>Retire<//></span>`
        : null,
  },
];

/** The texts that a token has had. @param {{name: Name, onAsk: (asked: Asked) => void, onClose: () => void}} properties */
function Versions({ name, onAsk, onClose }) {
  const list = useResource(async (signal) => /** @type {Api.TokenVersions} */ (await access.token({ op: "list", name: name.name, tenant_id: name.tenant_id }, { signal })), [name.tenant_id, name.name]);
  return html`<${Dialog} title=${`The token ${name.name} of ${name.tenant_id}`} wide onClose=${onClose}>
    <${Resource} of=${list}>${(/** @type {Api.TokenVersions} */ { tokens }) => html`<${PlainTable} label="Texts" rows=${tokens} rowKey=${(/** @type {Token} */ token) => token.def_id} columns=${versionColumns((token) => onAsk({ what: "retire", name, id: token.def_id }))} />`}<//>
  <//>`;
}

/** @param {(token: Token) => void} onRetire */
const versionColumns = (onRetire) => [
  { key: "id", title: "Id", cell: (/** @type {Token} */ token) => html`<${Id} id=${token.def_id} short=${8} />` },
  { key: "text", title: "Text", cell: (/** @type {Token} */ token) => (token.token_suffix ? html`<code>lct_${token.token_suffix}…</code>` : html`<span class="dim">imported</span>`) },
  { key: "state", title: "State", cell: (/** @type {Token} */ token) => html`<${TokenState} token=${token} />` },
  { key: "subject", title: "Subject", cell: (/** @type {Token} */ token) => html`<bdi>${token.subject}</bdi>` },
  { key: "scopes", title: "Scopes", cell: (/** @type {Token} */ token) => html`<span class="mono wraps">${token.allowed_scopes.join(" ")}</span>` },
  { key: "made", title: "Made", cell: (/** @type {Token} */ token) => html`<${Time} at=${token.created_at} relative />${token.created_by ? html` <span class="dim">by <bdi>${token.created_by}</bdi></span>` : null}` },
  { key: "act", title: html`<span class="spoken">Actions</span>`, align: /** @type {"right"} */ ("right"), cell: (/** @type {Token} */ token) => (token.active ? html`<${Button} small label=${`Retire the text ${token.token_suffix ?? token.def_id}`} onClick=${() => onRetire(token)}>Retire<//>` : null) },
];
