// The raw records of a run: where each lies in the log, what it holds, what caused it, and how to get it from a command line.
import { html, useMemo, useState } from "../../ui.js";
import { get, runs, seg } from "../../api.js";
import { Button, Checkbox, Chip, CopyButton, Id } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { Json } from "../../components/json.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatBytes, formatDuration } from "../../components/time.js";
import { printJson } from "../../exact_json.js";
import { useAction } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { may } from "../../session.js";
import { viewLink } from "./links.js";
import { PROBLEMS, commandsOf, foldedTypes, lineOf, rowsOf, toneOf } from "./records.js";

const ROW = 30;
const encoder = new TextEncoder();
/** @type {WeakMap<any, number>} */
const sizes = new WeakMap();

/** Bytes of the payload as JSON; measured when a row is shown. */
function sizeOf(event) {
  let size = sizes.get(event);
  if (size === undefined) {
    size = encoder.encode(printJson(event.payload)).length;
    sizes.set(event, size);
  }
  return size;
}

/** @param {{history: import("./history.js").History}} properties */
export default function Events({ history }) {
  const query = here.value.query;
  const type = query.get("type") ?? "";
  const text = query.get("text") ?? "";
  const isFolded = query.get("fold") === "1";
  const seq = Number(query.get("seq")) || 0;
  const [opened, setOpened] = useState(/** @type {Set<string>} */ (new Set()));
  const events = history.shown;
  const types = useMemo(() => [...new Set(events.map((event) => event.type))].sort(), [events]);
  const rows = useMemo(() => rowsOf(events, { type, text, isFolded, opened, kept: seq }), [events, type, text, isFolded, opened, seq]);
  const chosen = seq ? history.events[seq - 1] : undefined;
  const open = (row) => (row.kind === "fold" ? setOpened(new Set([...opened, row.key])) : setQuery({ seq: row.event.seq }));
  const isFiltered = Boolean(type || text);
  const known = rows.reduce((sum, row) => sum + (row.kind === "record" ? 1 : row.events.length), 0);

  const columns = [
    { key: "seq", title: "Seq", width: "3.6rem", align: /** @type {"right"} */ ("right"), cell: (row) => (row.kind === "fold" ? html`<${Icon} name="chevron-right" size=${13} />` : html`<a href=${link(here.value.path, { ...Object.fromEntries(query), seq: row.event.seq })}>${row.event.seq}</a>`) },
    { key: "at", title: "Time", width: "6.4rem", cell: (row) => (row.kind === "fold" ? null : html`<${Time} at=${row.event.at} />`) },
    { key: "since", title: "After", width: "4.6rem", align: /** @type {"right"} */ ("right"), hidden: Boolean(chosen), cell: (row) => (row.kind === "fold" || !row.sinceMs ? null : html`<span class="dim" title="after the record before">+${formatDuration(row.sinceMs)}</span>`) },
    { key: "type", title: "Type", width: "12rem", cell: (row) => (row.kind === "fold" ? html`<span class="dim">${row.events.length} routine</span>` : html`<span class=${`record-type ${toneOf(row.event)}`}>${row.event.type}</span>`) },
    { key: "line", title: "What", width: "minmax(14rem, 1fr)", cell: (row) => (row.kind === "fold" ? html`<button class="link" type="button" onClick=${() => open(row)}>${foldedTypes(row.events)}</button>` : html`<bdi class="soft">${lineOf(row.event)}</bdi>`) },
    { key: "size", title: "Size", width: "4.8rem", align: /** @type {"right"} */ ("right"), hidden: Boolean(chosen), cell: (row) => (row.kind === "fold" ? null : html`<span class="dim">${formatBytes(sizeOf(row.event))}</span>`) },
    { key: "place", title: "Partition/offset", width: "7.4rem", align: /** @type {"right"} */ ("right"), hidden: Boolean(chosen), cell: (row) => (row.kind === "fold" ? null : html`<span class="mono dim" title=${row.event.position}>${row.event.partition}/${row.event.offset}</span>`) },
    { key: "term", title: "Term", width: "4.4rem", align: /** @type {"right"} */ ("right"), cell: (row) => (row.kind === "fold" ? null : row.newTerm ? html`<${Chip} tone="warn" title="Another owner of the partition wrote this: a takeover">${row.event.term}<//>` : html`<span class="dim">${row.event.term}</span>`) },
  ];
  return html`<div class="records">
    <div class="bar" role="search">
      <input class="records-text" type="search" aria-label="Text in the records" placeholder="Text in the records" value=${text} onInput=${(event) => setQuery({ text: event.currentTarget.value })} />
      <select class="records-types" aria-label="Type of record" value=${type} onChange=${(event) => setQuery({ type: event.currentTarget.value })}><option value="">Every type</option><option value=${PROBLEMS} selected=${type === PROBLEMS}>Failures and warnings</option>${types.map((one) => html`<option value=${one} key=${one} selected=${one === type}>${one}</option>`)}${type && type !== PROBLEMS && !types.includes(type) ? html`<option value=${type} selected>${type}</option>` : null}</select>
      <${Checkbox} label="Fold routine records" checked=${isFolded} onChange=${(checked) => (setOpened(new Set()), setQuery({ fold: checked ? "1" : null }))} />
      ${isFiltered ? html`<${Button} small kind="quiet" icon="x" onClick=${() => setQuery({ type: null, text: null })}>Remove filters<//>` : null}
      <span class="grow"></span>
      <span class="dim number" role="status">${isFiltered ? `${known.toLocaleString()} of ${events.length.toLocaleString()} records` : `${events.length.toLocaleString()} records`}</span>
    </div>
    <div class=${chosen ? "records-split chosen" : "records-split"}>
      <${Table} label="Records of the run" columns=${columns} rows=${rows} rowKey=${(row) => row.key} rowHeight=${ROW} onOpen=${open} markedKey=${seq ? String(seq) : ""} onMark=${(row) => seq && row.kind === "record" && setQuery({ seq: row.event.seq })}
        isLoading=${!history.isComplete && !events.length} isComplete=${history.isComplete} stickToEnd=${history.isLive && !seq && history.at === null}
        rowClass=${(row) => (row.kind === "fold" ? "fold" : row.event.seq === seq ? "chosen" : "")}
        empty=${isFiltered ? html`<${Empty} icon="search" title="No record fits">Remove a filter, or search for another text.<//>` : html`<${Empty} icon="scroll-text" title="No records up to this moment" command=${`loomlog events tail --run ${history.runId}`}>Move the slider to a later moment.<//>`} />
      ${chosen ? html`<${RecordPanel} event=${chosen} runId=${history.runId} key=${chosen.seq} onMove=${(to) => history.events[to - 1] && setQuery({ seq: to })} isLast=${chosen.seq === history.events.length} onLook=${() => history.setAt(chosen.seq)} isLookedAt=${history.at === chosen.seq} />` : null}
    </div>
  </div>`;
}

function RecordPanel({ event, runId, onMove, isLast, onLook, isLookedAt }) {
  const commands = commandsOf(event, location.origin);
  return html`<section class="card record" aria-label=${`Record ${event.seq}`}>
    <header><h2><span class=${`record-type ${toneOf(event)}`}>${event.type}</span> <small class="dim">seq ${event.seq}</small></h2>
      <${Button} kind="quiet" small icon="step-back" label="The record before" isDisabled=${event.seq <= 1} onClick=${() => onMove(event.seq - 1)} />
      <${Button} kind="quiet" small icon="step-forward" label="The next record" isDisabled=${isLast} onClick=${() => onMove(event.seq + 1)} />
      <${Button} kind="quiet" small icon="x" label="Close" onClick=${() => setQuery({ seq: null })} /></header>
    <div class="inside">
      <dl class="facts">
        <dt>Time</dt><dd><${Time} at=${event.at} /> <span class="dim mono">${event.at}</span></dd>
        <dt>Place</dt><dd>${may("substrate:admin") ? html`<a class="mono" href=${link(`/log/${seg(event.topic)}/${event.partition}`, { from: event.offset })}>${event.topic}/${event.partition}/${event.offset}</a>` : html`<span class="mono">${event.topic}/${event.partition}/${event.offset}</span>`} <${CopyButton} text=${`${event.topic}/${event.partition}/${event.offset}`} label="Copy the place" /></dd>
        <dt>Term</dt><dd class="number">${event.term}${event.stale ? html` <${Chip} tone="bad" title="Its writer had lost the partition; readers ignore it">stale<//>` : null}</dd>
        <dt>Size</dt><dd class="number">${formatBytes(sizeOf(event))} <span class="dim">as JSON</span></dd>
        <${Cause} event=${event} />
        <${Chain} event=${event} runId=${runId} />
      </dl>
      <div class="actions">
        <${CopyButton} text=${commands.curl} label="Copy a curl command for this record"><span>curl</span><//>
        <${CopyButton} text=${commands.cli} label="Copy the loomlog command for this record"><span>loomlog</span><//>
        ${isLookedAt ? null : html`<${Button} small kind="quiet" icon="rewind" title="Every view shows the run as it was after this record" onClick=${onLook}>The run at this moment<//>`}
        ${event.payload.child_run_id ? html`<a href=${link(`/runs/${seg(event.payload.child_run_id)}`)}>Open the child</a>` : null}
        ${event.payload.turn ? html`<a href=${viewLink(runId, "context", { turn: event.payload.turn })}>What the model saw at turn ${event.payload.turn}</a>` : null}
      </div>
      <${Json} value=${event.payload} open=${2} label="Payload" />
    </div>
  </section>`;
}

/** The command that a record answers: its id, and its place in the topic of commands. */
function Cause({ event }) {
  const action = useAction();
  const [command, setCommand] = useState(/** @type {any} */ (null));
  const topic = event.topic.replace(/events$/, "commands");
  const hasPlace = event.cause_offset !== null;
  const read = () => action.run(async () => setCommand(await get(`/v1/events/${seg(topic)}/${event.partition}/${event.cause_offset}`)));
  return html`<dt>Cause</dt><dd>
    ${event.cause_id ? html`<${Id} id=${event.cause_id} short=${0} />` : html`<span class="dim">none: its owner wrote it by itself</span>`}
    ${hasPlace ? html`<div>${may("substrate:admin") ? html`<a class="mono" href=${link(`/log/${seg(topic)}/${event.partition}`, { from: event.cause_offset })}>${topic}/${event.partition}/${event.cause_offset}</a> ${command ? null : html`<${Button} small kind="quiet" isBusy=${action.isBusy} onClick=${read}>Show it here<//>`}` : html`<span class="mono dim">${topic}/${event.partition}/${event.cause_offset}</span>`}</div>` : null}
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
    ${command ? html`<div class="record-command"><b>${command.type}</b><${Json} value=${command.payload} open=${1} label="The command" /></div>` : null}
  </dd>`;
}

/** The value of the hash chain after this record, computed by the server from the log when it is asked for. */
function Chain({ event, runId }) {
  const action = useAction();
  const [state, setState] = useState(/** @type {any} */ (null));
  const check = () => action.run(async () => setState(await runs.state(runId, event.seq)));
  return html`<dt>Hash chain</dt><dd>
    ${state
      ? html`<${Id} id=${state.tail_digest} short=${0} /> ${state.drift.length ? html`<${Chip} tone="bad" icon="circle-alert">does not fit<//>` : html`<${Chip} tone="good" icon="shield-check" title="The run was read from its first record to this one, and every hash fits the one before">fits up to here<//>`}
          ${state.drift.map((one) => html`<p class="problem" key=${one}>${one}</p>`)}<div class="dim">State <code>${state.state_sha256.slice(0, 16)}…</code></div>`
      : html`<${Button} small icon="shield-check" isBusy=${action.isBusy} onClick=${check}>Verify up to here<//>`}
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  </dd>`;
}
