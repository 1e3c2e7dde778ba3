// The records of a partition: a window around an offset, a time or the newest record, which grows as it is scrolled; one record beside it.
import { html, useEffect, useLayoutEffect, useRef, useState } from "../../ui.js";
import { log } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { useKeys } from "../../components/keys.js";
import { Empty, ErrorState, Loading } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatBytes, formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { toneOf } from "../run/records.js";
import { LogCrumbs } from "./crumbs.js";
import { claimText, isOffset, lineOf, parsePlace, whyStale } from "./model.js";
import { RecordPanel } from "./record.js";
import { topicOf } from "./topics.js";
import { useWindow } from "./use_window.js";
import { hasPaused } from "./window.js";

const ROW = 30;
/** Rows from the top at which older ones are read. */
const AHEAD = 8;
const TOPICS_EVERY_MS = 10_000;

/** @param {{topic: string, partition: string}} properties */
export function PartitionPage({ topic, partition }) {
  const query = here.value.query;
  const from = query.get("from") ?? "";
  const type = query.get("type") ?? "";
  const runId = query.get("run_id") ?? "";
  const isLive = !from && query.get("live") !== "0";
  const records = useWindow({ topic, partition, from, type, runId, isLive });
  const topics = useResource((signal) => log.topics({ signal }).then((answer) => answer.topics), [], { everyMs: TOPICS_EVERY_MS });
  const found = topicOf(topics.data ?? [], topic);
  const { window } = records;
  // A link to a record names its offset in `from`: that record is opened at once.
  const asked = query.get("at") ?? (isOffset(from) ? from : "");
  const at = window?.rows.findIndex((record) => String(record.offset) === asked) ?? -1;
  const chosen = at < 0 ? null : window?.rows[at];
  const open = (record) => setQuery({ at: record.offset });
  const close = () => setQuery({ at: isOffset(from) ? "none" : null });
  const move = (to) => window?.rows[to] && open(window.rows[to]);
  useKeys("Records of the partition", chosen ? { Escape: ["Close the record", close] } : {});
  const names = [...new Set((window?.rows ?? []).map((record) => record.type).filter(Boolean))].sort();

  return html`<div class="page full log log-partition">
    <header>
      <${LogCrumbs} topic=${found?.name ?? topic} />
      <h1><span class="mono">${topic}</span><span class="spoken">, partition ${partition}</span></h1><span class="dim">/</span>
        ${found && found.partitions.length > 1
          ? html` <select aria-label="Partition" value=${partition} onChange=${(event) => navigate(`/log/${encodeURIComponent(topic)}/${event.currentTarget.value}${runId || type ? `?${new URLSearchParams({ ...(type ? { type } : {}), ...(runId ? { run_id: runId } : {}) })}` : ""}`)}>
              ${found.partitions.map((one) => html`<option value=${String(one.partition)} selected=${String(one.partition) === partition} key=${one.partition}>${one.partition}: ${formatCount(one.offsets)} offsets</option>`)}
            </select>`
          : html` <span class="mono">${partition}</span>`}
    </header>
    <div class="bar" role="search">
      <${JumpForm} from=${from} />
      <${Button} small icon="skip-back" isDisabled=${!window} title="The first record that the partition holds" onClick=${() => setQuery({ from: window?.beginning, at: "none", live: null }, { replace: false })}>Oldest<//>
      <${Button} small icon="skip-forward" isPressed=${!from} title="The newest records" onClick=${() => (from ? setQuery({ from: null, at: null, live: null }, { replace: false }) : records.reload())}>Newest<//>
      <${Button} small icon=${isLive ? "pause" : "radio"} isPressed=${isLive} title=${isLive ? "New records appear every two seconds; press to hold" : "Show new records as they come in"} onClick=${() => setQuery(isLive ? { live: "0" } : { from: null, live: null, at: null })}>Live<//>
      <span class="grow"></span>
      <${FilterForm} key=${`${type} ${runId}`} type=${type} runId=${runId} names=${names} />
    </div>
    <${Body} records=${records} asked=${asked} from=${from} isLive=${isLive} isFiltered=${Boolean(type || runId)} chosen=${chosen} at=${at} open=${open} move=${move} close=${close} />
  </div>`;
}

/** Goes to an offset or a time. */
function JumpForm({ from }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useKeys("Records of the partition", { t: ["Go to an offset or a time", () => input.current?.focus()] });
  const go = (event) => {
    event.preventDefault();
    const place = parsePlace(text, Date.now());
    setProblem(place.problem ?? "");
    if (!place.from) return;
    setText("");
    input.current?.blur();
    setQuery({ from: place.from, at: null, live: null }, { replace: false });
  };
  return html`<form class="log-jump" onSubmit=${go}>
    <input ref=${input} aria-label="Offset or time to go to" aria-describedby="log-jump-problem" aria-invalid=${problem ? "true" : undefined} placeholder=${from ? (isOffset(from) ? `at offset ${from}` : `at ${new Date(from).toLocaleString()}`) : "offset, 10:30 or 15m"} value=${text} onInput=${(event) => (setText(event.currentTarget.value), setProblem(""))} autocomplete="off" spellcheck="false" />
    <${Button} small type="submit" isDisabled=${!text.trim()}>Go<//>
    <p id="log-jump-problem" class=${problem ? "problem" : "spoken"} role="status">${problem}</p>
  </form>`;
}

function FilterForm({ type, runId, names }) {
  const [wish, setWish] = useState({ type, runId });
  const isChanged = wish.type.trim() !== type || wish.runId.trim() !== runId;
  const apply = (event) => {
    event.preventDefault();
    if (isChanged) setQuery({ type: wish.type.trim(), run_id: wish.runId.trim(), at: null });
  };
  return html`<form class="log-filter" onSubmit=${apply}>
    <input aria-label="Type of record" placeholder="Type" value=${wish.type} list="log-types" onInput=${(event) => setWish({ ...wish, type: event.currentTarget.value })} onChange=${apply} autocomplete="off" spellcheck="false" />
    <datalist id="log-types">${names.map((name) => html`<option value=${name} key=${name} />`)}</datalist>
    <input aria-label="Run or aggregate" placeholder="Run or family:tenant/name" value=${wish.runId} onInput=${(event) => setWish({ ...wish, runId: event.currentTarget.value })} autocomplete="off" spellcheck="false" />
    ${isChanged ? html`<${Button} small type="submit">Filter<//>` : null}
    ${type || runId ? html`<${Button} small kind="quiet" icon="x" onClick=${() => setQuery({ type: null, run_id: null })}>Remove filters<//>` : null}
  </form>`;
}

function Body({ records, asked, from, isLive, isFiltered, chosen, at, open, move, close }) {
  const { window, error, busy, on, back } = records;
  const box = useRef(/** @type {HTMLDivElement | null} */ (null));
  useStillRows(box, records.prepended);
  const readBack = () => window && busy === "" && !error && !window.emptyBack && (box.current?.scrollTop ?? 0) < AHEAD * ROW && back();
  // After a jump the records before it are read too, and a few rows are no reason to stop.
  useEffect(() => void readBack(), [window]);
  if (!window) return error ? html`<${ErrorState} error=${error} onRetry=${records.reload} />` : html`<${Loading} rows=${12} label="Reading records" />`;
  return html`
    ${error ? html`<${ErrorState} error=${error} onRetry=${records.reload} compact />` : null}
    <div class=${chosen ? "records-split chosen" : "records-split"} onScrollCapture=${readBack}>
      <div class="log-rows">
        <${Edges} window=${window} busy=${busy} isLive=${isLive} isFiltered=${isFiltered} on=${on} back=${back} />
        <${Table}
          label="Records" columns=${columnsOf(Boolean(chosen))} rows=${window.rows} rowKey=${(record) => String(record.offset)} rowHeight=${ROW} boxRef=${box}
          onOpen=${open} onMark=${(record) => chosen && open(record)} markedKey=${chosen ? String(chosen.offset) : ""} rowClass=${(record) => `${record.kind}${record === chosen ? " chosen" : ""}`}
          isComplete=${window.isAtEnd || hasPaused(window)} isLoading=${busy === "on"} onEnd=${on} stickToEnd=${!from && !chosen}
          empty=${html`<${Nothing} window=${window} from=${from} isFiltered=${isFiltered} />`} />
      </div>
      ${chosen ? html`<${RecordPanel} record=${chosen} key=${chosen.offset} onBefore=${at > 0 ? () => move(at - 1) : null} onAfter=${at + 1 < window.rows.length ? () => move(at + 1) : null} onClose=${close} />` : null}
    </div>
    ${asked && asked !== "none" && !chosen && window.rows.length ? html`<p class="hint log-foot">${missingText(asked, window, isFiltered)}</p>` : null}`;
}

function missingText(asked, window, isFiltered) {
  const offset = Number(asked);
  if (offset >= window.end) return `There is no record ${asked} yet: the partition ends before offset ${formatCount(window.end)}.`;
  if (offset < window.beginning) return `Record ${asked} has been deleted: the partition begins at offset ${formatCount(window.beginning)}.`;
  if (isFiltered) return `Record ${asked} does not fit the filter, or is not read yet.`;
  return `There is no record at offset ${asked} in what is read: offsets have gaps where the broker removed records, or keeps marks of its own.`;
}

/** What is there above and below the rows, and how to read on. */
function Edges({ window, busy, isLive, isFiltered, on, back }) {
  const hasBefore = window.first > window.beginning;
  return html`<div class="bar log-edges">
    <span class="dim number" role="status">${formatCount(window.rows.length)} ${isFiltered ? "matching" : "records"}, offsets ${formatCount(window.first)} to ${formatCount(window.next)} of ${formatCount(window.beginning)} to ${formatCount(window.end)}</span>
    <span class="grow"></span>
    ${hasBefore ? html`<${Button} small kind="quiet" icon="arrow-up" isBusy=${busy === "back"} title=${window.emptyBack ? `Nothing fits down to offset ${formatCount(window.first)}; look further` : "Records before these"} onClick=${back}>${window.emptyBack ? "Look further back" : "Older"}<//>` : html`<span class="dim">begins here</span>`}
    ${window.isAtEnd
      ? isLive ? html`<${Chip} tone="live" icon="radio">live<//>` : html`<span class="dim">up to the end</span>`
      : html`<${Button} small kind="quiet" icon="arrow-down" isBusy=${busy === "on"} title=${hasPaused(window) ? `Nothing fits up to offset ${formatCount(window.next)}; look further` : "Records after these"} onClick=${on}>${hasPaused(window) ? "Look further on" : "Newer"}<//>`}
  </div>`;
}

function Nothing({ window, from, isFiltered }) {
  if (isFiltered) return html`<${Empty} icon="search" title="No record fits">Between offsets ${formatCount(window.first)} and ${formatCount(window.next)}. Look further with the buttons above, or remove a filter.<//>`;
  if (window.end === window.beginning) return html`<${Empty} icon="scroll-text" title="This partition is empty">${window.end ? `Its ${formatCount(window.end)} records have been deleted when their time was over.` : "Nothing was written to it yet. New records appear here by themselves."}<//>`;
  return html`<${Empty} icon="scroll-text" title=${from ? "No record from here on" : "No record in these offsets"}><p>The partition holds offsets ${formatCount(window.beginning)} to ${formatCount(window.end)}; the broker removed those in between, or ${from ? "this is after its end" : "keeps only the newest of each key"}.</p><p><a href=${link(here.value.path)}>The newest records</a></p><//>`;
}

/** Rows above the one that was jumped to. */
const CONTEXT = 4;

/** Keeps what is in view where it is when rows come in above it. @param {{current: HTMLDivElement | null}} box @param {number} prepended */
function useStillRows(box, prepended) {
  const before = useRef(0);
  useLayoutEffect(() => {
    const more = prepended - before.current;
    if (box.current && more > 0) box.current.scrollTop += (box.current.scrollTop === 0 && before.current === 0 ? Math.max(0, more - CONTEXT) : more) * ROW;
    before.current = prepended;
  }, [prepended]);
}

const RIGHT = /** @type {"right"} */ ("right");
const WIDE = [
  { key: "offset", title: "Offset", width: "4.6rem", align: RIGHT, cell: (record) => html`<a href=${link(here.value.path, { ...Object.fromEntries(here.value.query), at: record.offset })}>${record.offset}</a>` },
  { key: "at", title: "Time", width: "7.4rem", cell: (record) => html`<${Time} at=${record.at} />` },
  { key: "term", title: "Term", width: "3rem", align: RIGHT, cell: (record) => html`<span class="dim">${record.kind === "claim" ? record.term_in_force : (record.term ?? "")}</span>` },
  { key: "type", title: "Type", width: "minmax(8rem, 12rem)", cell: (record) => html`<${TypeCell} record=${record} />` },
  { key: "run", title: "Run or aggregate", width: "minmax(8rem, 11rem)", cell: (record) => (record.run_id ? html`<span class="mono" title=${record.run_id}><bdi>${shortId(record.run_id)}</bdi></span>` : html`<span class="dim mono" title="Key of the record"><bdi>${record.kind === "claim" ? "" : (record.key ?? "")}</bdi></span>`) },
  { key: "seq", title: "Seq", width: "3rem", align: RIGHT, cell: (record) => html`<span class="dim">${record.seq ?? ""}</span>` },
  { key: "line", title: "What", width: "minmax(14rem, 3fr)", cell: (record) => html`<${What} record=${record} />` },
  { key: "size", title: "Size", width: "4.6rem", align: RIGHT, cell: (record) => html`<span class="dim">${formatBytes(record.size_bytes)}</span>` },
];
const NARROW = WIDE.filter((column) => ["offset", "at", "type", "line"].includes(column.key));

/** The same arrays each time: the table draws only what changed. @param {boolean} isSplit */
const columnsOf = (isSplit) => (isSplit ? NARROW : WIDE);

const shortId = (id) => (/^r_/.test(id) ? `r_…${id.slice(-10)}` : id);

/** @param {{record: Api.LoggedRecord}} properties */
function What({ record }) {
  if (record.kind === "claim") return null;
  return html`${record.kind === "stale" ? html`<span class="warn" title=${whyStale(record)}>ignored, term ${record.term_in_force} was in force</span> ` : null}<bdi class="soft">${lineOf(record)}</bdi>`;
}

/** @param {{record: Api.LoggedRecord}} properties */
function TypeCell({ record }) {
  // The cells after it are empty: the text of a new term runs through the whole row.
  if (record.kind === "claim") return html`<${Icon} name="git-branch" size=${13} /> <b>${claimText(record)}</b>`;
  if (record.kind === "stale") return html`<span title=${whyStale(record)}><s>${record.type}</s></span>`;
  if (record.kind === "unreadable") return html`<${Chip} tone="bad" icon="circle-alert" title=${record.error ?? ""}>unreadable<//>`;
  return html`<span class=${`record-type ${toneOf(record)}`}>${record.type}</span>`;
}
