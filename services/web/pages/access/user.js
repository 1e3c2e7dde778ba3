// One user: what there is of it, its tokens, and what an operator can do with it.
import { html, useState } from "../../ui.js";
import { access } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Confirm, Dialog, ShownOnce } from "../../components/dialog.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { link, navigate } from "../../router.js";
import { shellWord, toRfc3339 } from "../../values.js";
import { MODES, bodyOf } from "./model.js";
import { TokenState } from "./token_state.js";
import { UserDialog } from "./user_dialog.js";

/** @typedef {Api.UserTokens["tokens"][number]} Token */
/** @typedef {Api.UserList["users"][number]} User */
/** @typedef {{facts: Api.InspectedUser, user: User | undefined, tokens: Token[]}} Known */

/** @param {{subject: string, tenant: string}} properties */
export function UserPage({ subject, tenant }) {
  const [asked, setAsked] = useState("");
  const [revoked, setRevoked] = useState(/** @type {Token | null} */ (null));
  const known = useResource(
    async (signal) => {
      const [facts, { users }] = await Promise.all([access.user(subject, { tenant }, { signal }), access.users({ tenant }, { signal })]);
      const user = users.find((one) => one.user_id === subject);
      const tokens = user?.registered ? (await access.userTokens(subject, { tenant }, { signal })).tokens : [];
      return /** @type {Known} */ ({ facts, user, tokens });
    },
    [subject, tenant],
  );
  const close = () => setAsked("");
  const done = (text) => () => (toast(text), known.reload());
  const setStatus = async (status) => {
    await access.change(subject, { status }, { tenant });
    done(status === "active" ? `${subject} may have tokens again.` : `${subject} is disabled, and its tokens have ended.`)();
  };
  const remove = async () => {
    await access.remove(subject, { tenant });
    toast(`${subject} is deleted, and its tokens have ended.`);
    navigate(`/access/users${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`);
  };
  const revoke = async () => {
    await access.revoke(subject, revoked?.def_id, { tenant });
    done("The token has ended.")();
  };
  return html`
    <${Resource} of=${known}>${(/** @type {Known} */ { facts, user, tokens }) => html`
      <section class="card" aria-label="User">
        <header><h2><bdi>${user?.display_name || subject}</bdi></h2><${Button} icon="list" href=${link("/runs", { user_id: subject, tenant })}>Runs<//><${Actions} user=${user} onAsk=${setAsked} /></header>
        <div class="inside"><${Facts} facts=${facts} user=${user} subject=${subject} /></div>
      </section>
      ${user?.registered
        ? html`<section class="card" aria-label="Tokens">
            <header><h2>Tokens</h2>${user.status === "active" ? html`<${Button} icon="plus" onClick=${() => setAsked("token")}>New token<//>` : null}</header>
            <${PlainTable} label="Tokens" rows=${tokens} rowKey=${(/** @type {Token} */ token) => token.def_id} columns=${tokenColumns(setRevoked)}
              empty=${html`<${Empty} icon="shield-check" title="This user has no token" command=${`loomlog users token ${shellWord(subject)}`}><p>A token has the scopes that the access of the user gives.</p><//>`} />
          </section>`
        : null}
      ${asked === "register" ? html`<${UserDialog} tenant=${tenant} subject=${subject} onClose=${close} onDone=${done(`${subject} is registered.`)} />` : null}
      ${asked === "change" ? html`<${UserDialog} tenant=${tenant} subject=${subject} user=${user} onClose=${close} onDone=${done(`${subject} is changed.`)} />` : null}
    `}<//>
    ${asked === "token" ? html`<${TokenDialog} subject=${subject} tenant=${tenant} onClose=${close} onDone=${known.reload} />` : null}
    ${asked === "disable" ? html`<${Confirm} title=${`Disable ${subject}?`} confirm="Disable" danger onConfirm=${() => setStatus("disabled")} onClose=${close}><p>All its tokens end at once, and what they have open ends with them. Enabled again, it needs new ones.</p><//>` : null}
    ${asked === "enable" ? html`<${Confirm} title=${`Enable ${subject}?`} confirm="Enable" onConfirm=${() => setStatus("active")} onClose=${close}><p>It may have new tokens. Those that have ended stay so.</p><//>` : null}
    ${asked === "delete" ? html`<${Confirm} title=${`Delete ${subject}?`} confirm="Delete" danger typed=${subject} onConfirm=${remove} onClose=${close}><p>The user is no longer registered, and all its tokens end at once. What it has done stays; erasure, among the operations, ends that too.</p><//>` : null}
    ${revoked ? html`<${Confirm} title=${`Retire the token ${revoked.name}?`} confirm="Retire" danger onConfirm=${revoke} onClose=${() => setRevoked(null)}><p>It gives no access any more, in any process, within a second.</p><//>` : null}
  `;
}

/** @param {{user: User | undefined, onAsk: (what: string) => void}} properties */
function Actions({ user, onAsk }) {
  if (!user?.registered) return html`<${Button} kind="primary" icon="plus" onClick=${() => onAsk("register")}>Register<//>`;
  const isActive = user.status === "active";
  return html`<span class="actions">
    <${Button} onClick=${() => onAsk("change")}>Change<//>
    <${Button} onClick=${() => onAsk(isActive ? "disable" : "enable")}>${isActive ? "Disable" : "Enable"}<//>
    <${Button} kind="danger" icon="trash-2" onClick=${() => onAsk("delete")}>Delete<//>
  </span>`;
}

/** @param {{facts: Api.InspectedUser, user: User | undefined, subject: string}} properties */
function Facts({ facts, user, subject }) {
  return html`<dl class="facts">
    <dt>Subject</dt><dd><${Id} id=${subject} short=${0} /></dd>
    <dt>Access</dt><dd>${user?.registered ? html`${MODES[user.access_mode ?? ""] ?? user.access_mode} <${Chip} tone=${user.status === "active" ? "good" : "warn"}>${user.status}<//>` : html`not registered: known by its runs alone`}</dd>
    <dt>Runs</dt><dd>${formatCount(facts.activity.total_count)}, ${formatCount(facts.activity.running_count)} of them at work${facts.activity.last_started_at ? html`; the last began <${Time} at=${facts.activity.last_started_at} relative />` : null}</dd>
    <dt>Sessions</dt><dd>${formatCount(facts.chats)}</dd>
    <dt>Keys of memory</dt><dd>${formatCount(facts.memory.user_scope_rows ?? 0)}</dd>
    <dt>Calls of models</dt><dd>${formatCount(facts.usage.calls)}</dd>
    ${facts.errors.length ? html`<dt>Not looked at</dt><dd><bdi>${facts.errors.join("; ")}</bdi></dd>` : null}
  </dl>`;
}

/** @param {(token: Token) => void} onRevoke */
const tokenColumns = (onRevoke) => [
  { key: "name", title: "Name", cell: (/** @type {Token} */ token) => html`<bdi>${token.name}</bdi> <${Id} id=${token.def_id} short=${6} />` },
  { key: "state", title: "State", cell: (/** @type {Token} */ token) => html`<${TokenState} token=${token} />` },
  { key: "scopes", title: "Scopes", cell: (/** @type {Token} */ token) => html`<span class="mono wraps">${token.scopes.join(" ")}</span>` },
  { key: "made", title: "Made", cell: (/** @type {Token} */ token) => html`<${Time} at=${token.created_at} relative />` },
  { key: "act", title: html`<span class="spoken">Actions</span>`, align: /** @type {"right"} */ ("right"), cell: (/** @type {Token} */ token) => (token.active ? html`<${Button} small label=${`Retire ${token.name}`} onClick=${() => onRevoke(token)}>Retire<//>` : null) },
];

/** @param {{subject: string, tenant: string, onClose: () => void, onDone: () => void}} properties */
function TokenDialog({ subject, tenant, onClose, onDone }) {
  const [form, setForm] = useState({ name: "", expires: "" });
  const [made, setMade] = useState(/** @type {Api.UserTokenMade | null} */ (null));
  const action = useAction();
  const set = (name) => (value) => setForm((before) => ({ ...before, [name]: value }));
  const mint = async () => {
    const answer = await action.run(() => access.mint(subject, bodyOf({ name: form.name, expires_at: toRfc3339(form.expires) }), { tenant }));
    if (answer === false) return;
    setMade(answer);
    onDone();
  };
  if (made) return html`<${ShownOnce} title=${`The token ${made.name}`} secret=${made.token ?? ""} label="Copy the token" onClose=${onClose}>With it <bdi>${subject}</bdi> signs in here, and calls the API.<//>`;
  return html`<${Dialog} title=${`New token of ${subject}`} onClose=${onClose} actions=${html`<${Button} onClick=${onClose}>Cancel<//><${Button} kind="primary" isBusy=${action.isBusy} onClick=${mint}>Make it<//>`}>
    <form class="fields" onSubmit=${(event) => (event.preventDefault(), mint())}>
      <${Field} label="Name" value=${form.name} onInput=${set("name")} placeholder="laptop" hint="Empty: one is made." />
      <${Field} label="Ends" type="datetime-local" value=${form.expires} onInput=${set("expires")} hint="Empty: when it is retired." />
      <button type="submit" hidden></button>
    </form>
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  <//>`;
}
