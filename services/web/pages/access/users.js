// The users of a tenant: those that are registered, and those that have only run something.
import { html, useState } from "../../ui.js";
import { access } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { TenantField } from "../../components/tenant.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { me } from "../../session.js";
import { MODES } from "./model.js";
import { UserPage } from "./user.js";
import { UserDialog } from "./user_dialog.js";

/** @param {{rest: string}} properties rest: subject of a user; "": the list */
export default function Users({ rest }) {
  // Of an administrator the api wants the tenant named, where one user is meant.
  const tenant = here.value.query.get("tenant") || me.value?.tenant_id || "";
  return rest ? html`<${UserPage} key=${`${tenant}/${rest}`} subject=${rest} tenant=${tenant} />` : html`<${UserList} tenant=${tenant} />`;
}

/** @param {string} subject @param {string} tenant */
const userPath = (subject, tenant) => link(`/access/users/${encodeURIComponent(subject)}`, { tenant });

/** @typedef {Api.UserList["users"][number]} User */

/** @param {{tenant: string}} properties */
function UserList({ tenant }) {
  const text = here.value.query.get("q") ?? "";
  const [isNew, setNew] = useState(false);
  const list = useResource((signal) => access.users({ tenant }, { signal }), [tenant]);
  const wanted = text.trim().toLowerCase();
  const registered = (user) => {
    toast(`${user.subject} is registered.`);
    navigate(userPath(user.subject, tenant).replace(/^\/ui/, ""));
  };
  return html`
    <div class="bar">
      <input class="search" type="search" aria-label="Search users" placeholder="Search subject or name" value=${text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
      <${TenantField} />
      <span class="grow"></span>
      <${Button} kind="primary" icon="plus" onClick=${() => setNew(true)}>Register a user<//>
    </div>
    <${Resource} of=${list}>${(/** @type {Api.UserList} */ { users }) => html`<${Table}
      label="Users"
      rows=${users.filter((user) => !wanted || `${user.user_id} ${user.display_name ?? ""}`.toLowerCase().includes(wanted))}
      rowKey=${(user) => user.user_id}
      href=${(user) => userPath(user.user_id, tenant)}
      height="min(65vh, 720px)"
      empty=${users.length
        ? html`<${Empty} icon="search" title="No user fits the search"><p class="actions"><${Button} onClick=${() => setQuery({ q: "" })}>Show all<//></p><//>`
        : html`<${Empty} icon="users" title="There is no user yet" command="loomlog users add --subject ada --access-mode isolated"><p>A registered user has tokens of its own, which end when it is disabled.</p><//>`}
      columns=${columnsOf(tenant)}
    />`}<//>
    ${isNew ? html`<${UserDialog} tenant=${tenant} onClose=${() => setNew(false)} onDone=${registered} />` : null}
  `;
}

/** @param {string} tenant */
const columnsOf = (tenant) => [
  { key: "subject", title: "Subject", width: "minmax(9rem, 1.2fr)", cell: (/** @type {User} */ user) => (user.user_id ? html`<a href=${userPath(user.user_id, tenant)} title=${user.user_id}><bdi>${user.user_id}</bdi></a>` : html`<span class="dim">runs without a user</span>`) },
  { key: "name", title: "Name", width: "minmax(8rem, 1fr)", cell: (/** @type {User} */ user) => (user.display_name ? html`<bdi>${user.display_name}</bdi>` : html`<span class="dim">–</span>`) },
  { key: "mode", title: "Access", width: "minmax(11.5rem, 1fr)", cell: (/** @type {User} */ user) => (user.registered ? html`<span title=${user.access_mode}>${MODES[user.access_mode ?? ""] ?? user.access_mode}</span>` : html`<span class="dim">not registered</span>`) },
  { key: "status", title: "Status", width: "5.5rem", cell: (/** @type {User} */ user) => (user.registered ? html`<${Chip} tone=${user.status === "active" ? "good" : "warn"}>${user.status}<//>` : html`<span class="dim">–</span>`) },
  { key: "working", title: "Working", width: "5.5rem", align: /** @type {"right"} */ ("right"), cell: (/** @type {User} */ user) => html`<span title="Top-level runs that have not ended">${formatCount(user.running_count)}</span>` },
  { key: "runs", title: "Runs", width: "4.5rem", align: /** @type {"right"} */ ("right"), cell: (/** @type {User} */ user) => html`<span title="Top-level runs among the newest of the tenant">${formatCount(user.total_count)}</span>` },
  { key: "last", title: "Last run", width: "7rem", align: /** @type {"right"} */ ("right"), cell: (/** @type {User} */ user) => html`<${Time} at=${user.last_started_at} relative />` },
];
