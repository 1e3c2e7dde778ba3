// One channel: what it holds, its messages, readers and queues, and what can be done with it.
import { html, useState } from "../../ui.js";
import { channels } from "../../api.js";
import { Button, Chip, Tabs } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Icon } from "../../components/icon.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { usePageTitle } from "../../frame.js";
import { useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { may } from "../../session.js";
import { DeclareDialog } from "./declare.js";
import { Source } from "./list.js";
import { Messages } from "./messages.js";
import { SCOPES, SOURCES, formatKept, hasQueues, publisherOf } from "./model.js";
import { PublishDialog } from "./publish.js";
import { Queues } from "./queues.js";
import { Readers } from "./readers.js";

const EVERY_MS = 5_000;

/** @param {{name: string}} properties */
export function ChannelPage({ name }) {
  usePageTitle(name);
  const tenant = here.value.query.get("tenant") ?? "";
  const found = useResource(async (signal) => ({ row: (await channels.list({ tenant }, { signal })).channels.find((one) => one.name === name) ?? null }), [name, tenant]);
  return html`<div class="page full">
    <${Resource} of=${found}>${({ row }) => (row ? html`<${Found} row=${row} tenant=${tenant} reload=${found.reload} />` : html`<${Missing} name=${name} tenant=${tenant} reload=${found.reload} />`)}<//>
  </div>`;
}

function Crumbs({ tenant }) {
  return html`<nav class="crumbs" aria-label="Where you are"><a href=${link("/channels", { tenant })}>Channels</a></nav>`;
}

function Missing({ name, tenant, reload }) {
  const [isAsked, setAsked] = useState(false);
  return html`<header><${Crumbs} tenant=${tenant} /><h1><bdi>${name}</bdi></h1></header>
    <${Empty} icon="radio" title="There is no channel of this name" command=${`loomlog channels create ${name}`}>
      <p class="actions"><${Button} href=${link("/channels", { tenant })}>All channels<//>${may("substrate:tenant") ? html`<${Button} kind="primary" icon="plus" onClick=${() => setAsked(true)}>Declare it<//>` : null}</p>
    <//>
    ${isAsked ? html`<${DeclareDialog} name=${name} tenant=${tenant} onClose=${() => setAsked(false)} onDone=${reload} />` : null}`;
}

function Found({ row, tenant, reload }) {
  const { query } = here.value;
  const scopeId = hasQueues(row.scope) ? (query.get("scope_id") ?? "") : "";
  const isOneQueue = !hasQueues(row.scope) || scopeId !== "";
  const isOrphan = row.source === "orphan";
  const [asked, setAsked] = useState("");
  const [knownIds, setKnownIds] = useState(/** @type {string[]} */ ([]));
  const [round, setRound] = useState(0);
  const queue = useResource((signal) => (isOneQueue && !isOrphan ? channels.readers(row.name, { scope_id: scopeId, tenant }, { signal }) : Promise.resolve(null)), [row.name, scopeId, tenant, isOneQueue && !isOrphan], { everyMs: EVERY_MS });
  const tabs = [
    ...(hasQueues(row.scope) ? [{ key: "queues", title: row.scope === "user" ? "Users" : "Agents", icon: "users" }] : []),
    ...(isOneQueue ? [{ key: "messages", title: "Messages", icon: "list" }, { key: "readers", title: "Readers", icon: "bookmark", count: queue.data?.readers.length }] : []),
    { key: "about", title: "About", icon: "info" },
  ];
  const wanted = query.get("view") ?? "";
  const view = isOrphan ? "about" : tabs.some((tab) => tab.key === wanted) ? wanted : isOneQueue ? "messages" : "queues";
  const isOpen = may("channel:publish") && (publisherOf(row) === "anyone allowed" || may("substrate:admin"));
  const isOperator = may("substrate:tenant");
  const isMade = isOperator && row.source === "runtime" && (row.scope !== "global" || may("substrate:admin"));
  const changed = () => (reload(), queue.reload(), setRound(round + 1));
  const close = () => setAsked("");
  return html`
    <header>
      <${Crumbs} tenant=${tenant} />
      <h1><bdi>${row.name}</bdi></h1>
      <${Chip} title=${SCOPES[row.scope]}>${row.scope}<//><${Source} source=${row.source} />
      ${scopeId ? html`<span class="chip info removable"><span>${row.scope} <bdi>${scopeId}</bdi></span><button aria-label="All queues" onClick=${() => setQuery({ scope_id: "", view: "" }, { replace: false })}><${Icon} name="x" size=${13} /></button></span>` : null}
      <span class="grow"></span>
      ${isMade ? html`<${Button} icon="settings" onClick=${() => setAsked("change")}>Change<//><${Button} kind="danger" icon="trash-2" onClick=${() => setAsked("delete")}>Delete<//>` : null}
      ${isOrphan && isOperator ? html`<${Button} kind="primary" icon="plus" onClick=${() => setAsked("declare")}>Declare it again<//>` : null}
      ${isOperator && !isOrphan && (row.scope !== "global" || may("substrate:admin")) ? html`<${Button} kind="danger" icon="x" onClick=${() => setAsked("purge")}>Purge<//>` : null}
      ${!isOrphan && isOpen ? html`<${Button} kind="primary" icon="send" onClick=${() => setAsked("publish")}>Publish<//>` : null}
      ${row.description ? html`<p class="sub"><bdi>${row.description}</bdi></p>` : null}
    </header>
    <${Figures} row=${row} queue=${queue.data ?? null} />
    <${Tabs} label=${row.name} selected=${view} onSelect=${(key) => setQuery({ view: key })} tabs=${tabs} />
    ${view === "messages" ? html`<${Messages} key=${`${scopeId} ${round}`} row=${row} scopeId=${scopeId} tenant=${tenant} queue=${queue.data ?? null} onMoved=${queue.reload} />` : null}
    ${view === "readers" ? html`<${Readers} row=${row} scopeId=${scopeId} tenant=${tenant} queue=${queue} />` : null}
    ${view === "queues" ? html`<${Queues} key=${round} row=${row} tenant=${tenant} onKnown=${setKnownIds} />` : null}
    ${view === "about" ? html`<${About} row=${row} />` : null}
    ${queue.error && view !== "readers" ? html`<${ErrorState} error=${queue.error} onRetry=${queue.reload} compact />` : null}
    ${asked === "publish" ? html`<${PublishDialog} row=${row} scopeId=${scopeId} knownIds=${knownIds} tenant=${tenant} onClose=${close} onDone=${() => (reload(), queue.reload())} />` : null}
    ${asked === "change" ? html`<${DeclareDialog} row=${row} tenant=${tenant} onClose=${close} onDone=${reload} />` : null}
    ${asked === "declare" ? html`<${DeclareDialog} name=${row.name} scope=${row.scope} tenant=${tenant} onClose=${close} onDone=${changed} />` : null}
    ${asked === "purge" ? html`<${Purge} row=${row} tenant=${tenant} onClose=${close} onDone=${changed} />` : null}
    ${asked === "delete" ? html`<${Delete} row=${row} tenant=${tenant} onClose=${close} />` : null}
  `;
}

function Figures({ row, queue }) {
  const figure = (name, value, title) => html`<div title=${title}><dt>${name}</dt><dd>${value}</dd></div>`;
  const of = queue ?? row;
  return html`<dl class="figures">
    ${figure(queue ? "Messages" : "Messages in all queues", formatCount(of.message_count), queue ? `${formatCount(queue.published)} were published to this queue` : "")}
    ${figure("Newest", html`<${Time} at=${of.newest_visible_at} relative />`)}
    ${figure("Oldest", html`<${Time} at=${of.oldest_visible_at} relative />`)}
    ${queue
      ? html`${figure("Delayed", html`${formatCount(queue.delayed)}${queue.next_visible_at ? html` <small class="dim">next <${Time} at=${queue.next_visible_at} relative /></small>` : null}`, "Published, and visible later")}
          ${figure("Leased", formatCount(queue.leased), "Taken by a reader that has not yet said that it is done with them")}
          ${figure("Waiting readers", formatCount(queue.waiting + queue.awaiting), `${queue.waiting} calls wait to take a message, ${queue.awaiting} await one without taking it`)}`
      : null}
  </dl>`;
}

function About({ row }) {
  const [, , source] = SOURCES[row.source] ?? ["", "", ""];
  return html`<div class="pane-scrolls">
    ${row.source === "yaml" || row.source === "system" ? html`<p class="note">${row.source === "yaml" ? html`This channel is declared under <code>channels:</code> in a configuration file, so that nobody changes at run time what an operator wrote there. Edit the file and start the services again. Publishing, purging and moving cursors work here.` : "The system declares and publishes this channel. A configuration file may declare it with another TTL or number of messages."}</p>` : null}
    ${row.source === "orphan" ? html`<p class="note warn">${source}.</p>` : null}
    <dl class="facts card-like">
      <dt>Scope</dt><dd>${row.scope}: ${SCOPES[row.scope]}</dd>
      <dt>Used as</dt><dd>${row.semantic} <span class="dim">(for people; all kinds work alike)</span></dd>
      <dt>Published by</dt><dd>${publisherOf(row)}</dd>
      <dt>Messages are kept</dt><dd>${formatKept(row.default_ttl)}${row.default_ttl ? "" : " (no message is kept longer)"}</dd>
      <dt>Messages of a queue</dt><dd>${row.max_messages ? `at most ${formatCount(row.max_messages)}; the oldest is dropped above it` : "any number"}</dd>
      <dt>Declared</dt><dd>${source}</dd>
      <dt>Command line</dt><dd><code>loomlog channels tail ${row.name}</code></dd>
    </dl>
  </div>`;
}

function Purge({ row, tenant, onClose, onDone }) {
  const purge = async () => {
    const answer = await channels.purge(row.name, { tenant });
    toast(`${formatCount(answer.purged)} messages of ${row.name} are removed.`);
    onDone();
  };
  return html`<${Confirm} title=${`Purge ${row.name}?`} confirm="Remove all messages" danger typed=${row.name} onClose=${onClose} onConfirm=${purge}>
    <p>All ${formatCount(row.message_count)} messages${hasQueues(row.scope) ? ` of the queues of every ${row.scope}` : ""}, and those that would become visible later, are removed. Cursors stay where they are. This cannot be undone.</p>
  <//>`;
}

function Delete({ row, tenant, onClose }) {
  const remove = async () => {
    await channels.remove(row.name, { tenant });
    toast(`${row.name} is deleted.`);
    navigate(`/channels${tenant ? `?tenant=${encodeURIComponent(tenant)}` : ""}`);
  };
  return html`<${Confirm} title=${`Delete ${row.name}?`} confirm="Delete" danger onClose=${onClose} onConfirm=${remove}>
    <p>Nothing is published or read any more. ${row.message_count ? `Its ${formatCount(row.message_count)} messages stay until they expire, and are read again if a channel of this name and scope is declared.` : ""}</p>
  <//>`;
}
