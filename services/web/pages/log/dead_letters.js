// Dead letters: records that could not be handled, why, their original, and its replay.
import { html, useState } from "../../ui.js";
import { log, newKey } from "../../api.js";
import { Button, Chip, CopyButton, Id } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { Json, LongText } from "../../components/json.js";
import { useKeys } from "../../components/keys.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { usePages, useResource } from "../../resource.js";
import { here, link, navigate, setQuery } from "../../router.js";
import { fromHex, parsePosition } from "./model.js";
import { Bytes } from "./record.js";

const PAGE_SIZE = 50;
const ROW = 32;
/** Topic of dead letters, which has one partition. */
const TOPIC = "loom.dead-letter";

/** Kinds of dead letters: word, tone, what happened. @type {Record<string, [string, string, string]>} */
const KINDS = {
  undecodable: ["undecodable", "bad", "Its bytes are no record: another program wrote them, or they were damaged."],
  unknown_schema: ["unknown schema", "warn", "Its schema is not known to the process that read it: written by a newer version. After an upgrade it can be replayed."],
  refused: ["refused", "warn", "It could be read, but not be handled. The reason says what was wrong with it."],
  fold_bug: ["fold bug", "bad", "The state could not be computed from it: a defect. After a correction it can be replayed."],
};

const pathOf = (offset) => `/log/dead-letters/${offset}`;
const keptQuery = () => Object.fromEntries(here.value.query);

/** @param {{offset?: string}} properties offset: of the letter that is shown beside the list */
export function DeadLetters({ offset }) {
  const kind = here.value.query.get("kind") ?? "";
  const letters = usePages(
    async (cursor, signal) => {
      const answer = await log.letters({ kind, cursor, limit: PAGE_SIZE }, { signal });
      return { rows: answer.letters, next: answer.next };
    },
    [kind],
  );
  const open = (letter) => link(pathOf(letter.offset), keptQuery());
  const close = () => navigate(`/log/dead-letters${kind ? `?kind=${kind}` : ""}`);
  const filter = (key, word) => html`<${Button} small isPressed=${kind === key} onClick=${() => setQuery({ kind: key })}>${word}<//>`;
  useKeys("Dead letters", offset ? { Escape: ["Close the letter", close] } : {});
  const isSplit = Boolean(offset);
  return html`
    <div class="bar">${filter("", "All")}${Object.entries(KINDS).map(([key, [word]]) => filter(key, word))}<span class="grow"></span>
      <span class="dim number" role="status">${letters.isLoading ? "" : `${formatCount(letters.rows.length)}${letters.isComplete ? "" : "+"} shown`}</span>
      <${Button} small icon="refresh-cw" label="Read the list again" isBusy=${letters.isLoading} onClick=${letters.reload} /></div>
    <div class=${isSplit ? "records-split chosen" : "records-split"}>
      ${letters.error
        ? html`<${ErrorState} error=${letters.error} onRetry=${letters.reload} />`
        : html`<${Table}
            label="Dead letters" columns=${isSplit ? NARROW : WIDE} rows=${letters.rows} rowKey=${(letter) => String(letter.offset)} rowHeight=${ROW} href=${open} onEnd=${letters.more} isComplete=${letters.isComplete} isLoading=${letters.isLoading}
            markedKey=${offset ?? ""} onMark=${(letter) => isSplit && navigate(pathOf(letter.offset) + location.search, { replace: true })} rowClass=${(letter) => (String(letter.offset) === offset ? "chosen" : "")}
            empty=${html`<${Empty} icon="circle-check" title=${kind ? "No dead letter of this kind" : "No dead letters"} command="loomlog dlq ls"><p>${kind ? "Remove the filter to see the others." : "Every record was handled. One that cannot be is kept here with the reason, and can be replayed."}</p><//>`} />`}
      ${offset ? html`<${Letter} offset=${offset} key=${offset} onClose=${close} onReplayed=${letters.reload} />` : null}
    </div>`;
}

const RIGHT = /** @type {"right"} */ ("right");
const WIDE = [
  { key: "offset", title: "Offset", width: "4.4rem", align: RIGHT, cell: (letter) => html`<a href=${link(pathOf(letter.offset), keptQuery())}>${letter.offset}</a>` },
  { key: "at", title: "Time", width: "7.4rem", cell: (letter) => html`<${Time} at=${letter.at} />` },
  { key: "kind", title: "Kind", width: "9rem", cell: (letter) => html`<${Kind} kind=${letter.kind} />` },
  { key: "service", title: "Found by", width: "6rem", cell: (letter) => letter.service },
  { key: "from", title: "Where it is", width: "minmax(12rem, 17rem)", cell: (letter) => html`<${Position} position=${letter.from} />` },
  { key: "error", title: "Reason", width: "minmax(12rem, 1fr)", cell: (letter) => html`<bdi title=${letter.error}>${letter.error}</bdi>` },
  { key: "replayed", title: "Replayed", width: "8rem", cell: (letter) => (letter.replayed.length ? html`<${Replayed} positions=${letter.replayed} />` : letter.acknowledged ? html`<${Chip} icon="check" title=${letter.acknowledged.reason}>acknowledged<//>` : html`<span class="dim">no</span>`) },
];
const NARROW = WIDE.filter((column) => ["offset", "kind", "error", "replayed"].includes(column.key));

function Kind({ kind }) {
  const [word, tone, text] = KINDS[kind] ?? [kind, "", ""];
  return html`<${Chip} tone=${tone} title=${text}>${word}<//>`;
}

function Position({ position }) {
  const place = parsePosition(position);
  if (!place) return html`<span class="mono">${position}</span>`;
  return html`<a class="mono" href=${link(`/log/${place.topic}/${place.partition}`, { from: place.offset })}>${position}</a>`;
}

function Replayed({ positions }) {
  const last = parsePosition(positions.at(-1));
  const text = positions.length > 1 ? `${positions.length} times` : "replayed";
  return html`<${Chip} tone="good" icon="check" title=${positions.join("\n")}>${last ? html`<a href=${link(`/log/${last.topic}/${last.partition}`, { from: last.offset })}>${text}</a>` : text}<//>`;
}

function Letter({ offset, onClose, onReplayed }) {
  const letter = useResource((signal) => log.letter(offset, { signal }), [offset]);
  return html`<section class="card record" aria-label=${`Dead letter ${offset}`}>
    <header><h2>Dead letter ${offset}</h2><${Button} kind="quiet" small icon="x" label="Close" onClick=${onClose} /></header>
    <div class="inside"><${Resource} of=${letter}>${(data) => html`<${LetterBody} letter=${data} onReplayed=${() => (letter.reload(), onReplayed())} />`}<//></div>
  </section>`;
}

/** @param {{letter: Api.DeadLetterDetail, onReplayed: any}} properties */
function LetterBody({ letter, onReplayed }) {
  const [isAsked, setAsked] = useState(false);
  const { original } = letter;
  const headers = Object.entries(original.headers);
  const command = `loomlog dlq ${letter.not_replayable ? "show" : "replay"} ${letter.offset}`;
  const [isNoted, setNoted] = useState(false);
  return html`
    <p class=${`note ${KINDS[letter.kind]?.[1] ?? ""}`}><b><${LongText} text=${letter.error} max=${600} /></b><br />${KINDS[letter.kind]?.[2] ?? ""}</p>
    <dl class="facts">
      <dt>Time</dt><dd><${Time} at=${letter.at} /> <span class="dim mono">${letter.at}</span></dd>
      <dt>Kind</dt><dd><${Kind} kind=${letter.kind} /> <span class="dim">found by ${letter.service}</span></dd>
      <dt>Where it is</dt><dd><${Position} position=${letter.from} /> <${CopyButton} text=${letter.from} label="Copy the place" /></dd>
      <dt>This letter</dt><dd><${Position} position=${`${TOPIC}/0:${letter.offset}`} /></dd>
      <dt>Written</dt><dd><${Time} at=${original.timestamp} /></dd>
      <dt>Key</dt><dd>${original.key ? html`<${Id} id=${original.key} short=${0} />` : html`<span class="dim">none</span>`}</dd>
      ${headers.map(([name, value]) => html`<dt key=${name}><bdi>${name}</bdi></dt><dd class="mono"><bdi>${value}</bdi></dd>`)}
      <dt>Replayed</dt><dd>${letter.replayed.length ? letter.replayed.map((position) => html`<div key=${position}><${Position} position=${position} /></div>`) : html`<span class="dim">not yet</span>`}</dd>
      ${letter.acknowledged ? html`<dt>Acknowledged</dt><dd><${Time} at=${letter.acknowledged.at} /> <span class="dim">by <bdi>${letter.acknowledged.by}</bdi></span>${letter.acknowledged.reason ? html`<div><bdi class="wraps">${letter.acknowledged.reason}</bdi></div>` : null}</dd>` : null}
    </dl>
    <div class="actions">
      ${letter.not_replayable
        ? html`<p class="hint">${letter.not_replayable}</p>`
        : html`<${Button} icon="rotate-ccw" kind=${letter.replayed.length ? "" : "primary"} onClick=${() => setAsked(true)}>${letter.replayed.length ? "Replay once more" : "Replay"}<//>`}
      ${letter.acknowledged ? null : html`<${Button} icon="check" onClick=${() => setNoted(true)}>Acknowledge<//>`}
      <${CopyButton} text=${command} label="Copy the loomlog command"><span>loomlog</span><//>
    </div>
    <h3>Original${original.type ? html` <code>${original.type}</code>` : ""}</h3>
    ${original.unreadable && original.unreadable !== letter.error ? html`<p class="problem"><bdi>${original.unreadable}</bdi></p>` : null}
    ${original.payload ? html`<${Json} value=${original.payload} open=${2} label="Original" />` : null}
    ${original.value_hex === null ? null : html`<details open=${!original.payload}><summary class="dim">Bytes</summary><${Bytes} bytes=${fromHex(original.value_hex)} /></details>`}
    ${isAsked ? html`<${Replay} letter=${letter} onClose=${() => setAsked(false)} onDone=${onReplayed} />` : null}
    ${isNoted ? html`<${Acknowledge} letter=${letter} onClose=${() => setNoted(false)} onDone=${onReplayed} />` : null}`;
}

/** @param {{letter: Api.DeadLetterDetail, onClose: any, onDone: any}} properties */
function Replay({ letter, onClose, onDone }) {
  // The same key for a repeated press: a replay whose answer was lost is not made twice.
  const [key] = useState(newKey);
  const isAgain = letter.replayed.length > 0;
  const replay = async () => {
    const answer = await log.replay(letter.offset, isAgain ? { again: true } : {}, { headers: { "idempotency-key": key } });
    toast(html`Appended as <${Position} position=${answer.position} />.`);
    onDone();
  };
  return html`<${Confirm} title=${isAgain ? "Replay this record once more?" : "Replay this record?"} confirm="Replay" danger=${isAgain} onClose=${onClose} onConfirm=${replay}>
    <p>${letter.original.type ? html`The command <code>${letter.original.type}</code>` : "The original"} is appended to its topic again, and handled like a new one. If it was handled after all, nothing happens: commands are told apart by their ids.</p>
    ${isAgain ? html`<p class="note warn">It was replayed before, ${letter.replayed.length === 1 ? "once" : `${letter.replayed.length} times`}.</p>` : null}
  <//>`;
}

/** @param {{letter: Api.DeadLetterDetail, onClose: any, onDone: any}} properties */
function Acknowledge({ letter, onClose, onDone }) {
  const acknowledge = async (reason) => {
    await log.acknowledge(letter.offset, reason ? { reason } : {});
    toast(`Dead letter ${letter.offset} is acknowledged.`);
    onDone();
  };
  return html`<${Confirm} title="Acknowledge this dead letter?" confirm="Acknowledge" takesReason onClose=${onClose} onConfirm=${acknowledge}>
    <p>Nothing more is needed of it: health counts it no longer. It stays in the log.</p>
  <//>`;
}
