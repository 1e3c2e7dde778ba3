// The topics of the installation: what each holds, how long, and how many records; and the partitions of one.
import { html } from "../../ui.js";
import { ApiError, log } from "../../api.js";
import { Chip } from "../../components/controls.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { formatBytes, formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { LogCrumbs } from "./crumbs.js";
import { retentionOf, searchTopics } from "./model.js";

const EVERY_MS = 5_000;
/** Partitions that the row of a topic links to; all of them are on its own page. */
const LINKED_MAX = 6;

const TONES = { events: "good", commands: "info", dead_letters: "bad", checkpoints: "live" };

const topicPath = (name) => `/log/${encodeURIComponent(name)}`;

export function Topics() {
  const text = here.value.query.get("q") ?? "";
  const topics = useResource((signal) => log.topics({ signal }).then((answer) => answer.topics), [], { everyMs: EVERY_MS });
  return html`
    <div class="bar"><input class="log-search" type="search" aria-label="Search the topics" placeholder="Search name, kind or description" value=${text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
      <span class="grow"></span><span class="dim number" role="status">${topics.data ? `${formatCount(searchTopics(topics.data, text).length)} of ${formatCount(topics.data.length)} topics` : ""}</span></div>
    <section class="card log-scroll" aria-label="Topics">
      <${Resource} of=${topics} rows=${12}>${(all) => html`<${PlainTable}
        label="Topics" rows=${searchTopics(all, text)} rowKey=${(topic) => topic.name}
        empty=${html`<${Empty} icon="search" title="No topic fits">Search for another word, such as commands or run.<//>`}
        columns=${[
          { key: "name", title: "Topic", sort: (topic) => topic.name, cell: (topic) => html`<a class="mono nowrap" href=${link(topic.partitions.length === 1 ? `${topicPath(topic.name)}/0` : topicPath(topic.name))}>${topic.name}</a>` },
          { key: "kind", title: "Kind", sort: (topic) => topic.kind, cell: (topic) => html`<${Chip} tone=${TONES[topic.kind] ?? ""}>${topic.kind.replace("_", " ")}<//>` },
          { key: "offsets", title: "Offsets", align: "right", sort: (topic) => topic.offsets, cell: (topic) => formatCount(topic.offsets) },
          { key: "partitions", title: "Partitions and their offsets", cell: (topic) => html`<${PartitionLinks} topic=${topic} />` },
          { key: "kept", title: "Kept", sort: (topic) => topic.retention_ms ?? Infinity, cell: (topic) => html`<span class="nowrap">${retentionOf(topic, formatBytes)}</span>` },
          { key: "about", title: "What it holds", cell: (topic) => html`<span class="soft log-about" title=${topic.about}>${topic.about}</span>` },
        ]}
      />`}<//>
    </section>`;
}

/** @param {{topic: Api.LogTopic}} properties */
function PartitionLinks({ topic }) {
  if (!topic.partitions.length) return html`<${Chip} tone="bad" icon="circle-alert" title="loomlog topics apply creates it">the broker does not have it<//>`;
  const rest = topic.partitions.length - LINKED_MAX;
  return html`<span class="log-partitions">
    ${topic.partitions.slice(0, rest > 0 ? LINKED_MAX - 1 : LINKED_MAX).map((one) => html`<a key=${one.partition} href=${link(`${topicPath(topic.name)}/${one.partition}`)} aria-label=${`Partition ${one.partition}: ${one.offsets} offsets`}><b>${one.partition}</b> ${formatCount(one.offsets)}</a>`)}
    ${rest > 0 ? html`<a href=${link(topicPath(topic.name))}>all ${topic.partitions.length}</a>` : null}
  </span>`;
}

/** @param {{topic: string}} properties */
export function TopicPage({ topic }) {
  const found = useResource((signal) => log.topics({ signal }).then((answer) => ({ topic: topicOf(answer.topics, topic) })), [topic], { everyMs: EVERY_MS });
  return html`<div class="page">
    <header><${LogCrumbs} /><h1><span class="mono">${topic}</span></h1></header>
    <${Resource} of=${found}>${(data) => (data.topic ? html`<${Partitions} topic=${data.topic} />` : html`<${ErrorState} error=${new ApiError(404, "not_found", `There is no topic ${topic}: the list of topics shows what there is.`)} />`)}<//>
  </div>`;
}

/** A topic by its full name, or by the name without the prefix. @param {any[]} topics @param {string} name */
export const topicOf = (topics, name) => topics.find((one) => one.name === name) ?? topics.find((one) => one.name === `loom.${name}`) ?? null;

/** @param {{topic: Api.LogTopic}} properties */
function Partitions({ topic }) {
  const most = Math.max(1, ...topic.partitions.map((one) => one.offsets));
  const figure = (name, value) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`;
  return html`
    <p class="soft">${topic.about}</p>
    <dl class="figures">${figure("Kind", topic.kind.replace("_", " "))}${figure("Offsets", formatCount(topic.offsets))}${figure("Kept", retentionOf(topic, formatBytes))}${figure("Replicas", topic.replicas || "–")}</dl>
    <section class="card" aria-label="Partitions"><${PlainTable}
      label="Partitions" rows=${topic.partitions} rowKey=${(one) => String(one.partition)}
      empty=${html`<${Empty} icon="layers" title="The broker does not have this topic" command="loomlog topics apply"><p>This command creates the topics that are missing.</p><//>`}
      columns=${[
        { key: "partition", title: "Partition", sort: (one) => one.partition, cell: (one) => html`<a href=${link(`${topicPath(topic.name)}/${one.partition}`)}>Partition ${one.partition}</a>` },
        { key: "from", title: "First offset", align: "right", cell: (one) => html`<a href=${link(`${topicPath(topic.name)}/${one.partition}`, { from: one.beginning_offset, at: "none" })}>${formatCount(one.beginning_offset)}</a>` },
        { key: "next", title: "Next offset", align: "right", sort: (one) => one.next_offset, cell: (one) => formatCount(one.next_offset) },
        { key: "offsets", title: "Offsets", align: "right", sort: (one) => one.offsets, cell: (one) => formatCount(one.offsets) },
        { key: "share", title: html`<span class="spoken">Compared with the others</span>`, cell: (one) => html`<span class="log-share" aria-hidden="true"><i style=${{ width: `${(one.offsets / most) * 100}%` }}></i></span>` },
      ]}
    /></section>
    ${topic.is_compacted ? html`<p class="hint">The broker keeps only the newest record of each key here, so a partition has fewer records than offsets.</p>` : null}`;
}
