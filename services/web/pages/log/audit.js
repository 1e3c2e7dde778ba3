// Verification of the log against what was signed: what to verify, how far it is, the verdict; and the newest checkpoints.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { log } from "../../api.js";
import { Button, Checkbox, Chip, CopyButton, Field, Id } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount, formatDuration } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { follow } from "../../stream.js";
import { NOTHING, commandOf, fold, requestOf } from "./audit_model.js";
import { Verdict } from "./verdict.js";

const CHECKPOINTS_EVERY_MS = 10_000;
const WHAT = [
  { value: "all", title: "Everything" },
  { value: "entities", title: "Entities only" },
  { value: "channels", title: "Channels only" },
  { value: "run", title: "One run or aggregate" },
];

export function AuditTab() {
  const query = here.value.query;
  const [wish, setWish] = useState(() => ({ what: query.get("what") ?? "all", run: query.get("run") ?? "", partition: "", since: query.get("since") ?? "", blobs: true, maxUnsigned: "" }));
  const [problems, setProblems] = useState(/** @type {Record<string, string>} */ ({}));
  const verification = useVerification();
  const change = (changes) => {
    setWish({ ...wish, ...changes });
    setProblems({});
  };
  const begin = (event) => {
    event.preventDefault();
    const asked = requestOf(wish, Date.now());
    setProblems(asked.problems);
    if (!asked.body) return;
    setQuery({ what: wish.what === "all" ? null : wish.what, run: wish.what === "run" ? wish.run.trim() : null, since: wish.what === "run" ? null : wish.since.trim() });
    verification.begin(asked.body);
  };
  const command = requestOf(wish, Date.now()).body;
  const isRun = wish.what === "run";
  return html`<div class="log-audit">
    <section class="card" aria-labelledby="verify-title">
      <header><h2 id="verify-title">Verify</h2>${command ? html`<${CopyButton} text=${commandOf(command)} label="Copy the loomlog command"><span>loomlog</span><//>` : null}</header>
      <form class="inside fields" onSubmit=${begin}>
        <div class="fields two">
          <${Field} label="What" value=${wish.what} options=${WHAT} onInput=${(what) => change({ what })} />
          ${isRun
            ? html`<${Field} label="Run or aggregate" required value=${wish.run} onInput=${(run) => change({ run })} error=${problems.run} placeholder="r_… or family:tenant/name" code />`
            : html`<${Field} label="Signed since" value=${wish.since} onInput=${(since) => change({ since })} error=${problems.since} placeholder="24h; empty: from the beginning" />
                <${Field} label="Partition" value=${wish.partition} onInput=${(partition) => change({ partition })} error=${problems.partition} placeholder="all" />`}
          <${Field} label="Most seconds unsigned" value=${wish.maxUnsigned} onInput=${(maxUnsigned) => change({ maxUnsigned })} error=${problems.maxUnsigned} placeholder="no limit" />
        </div>
        <${Checkbox} label="Compare the blobs that events name" checked=${wish.blobs} onChange=${(blobs) => change({ blobs })} />
        <div class="actions">
          ${verification.isRunning ? html`<${Button} icon="square" onClick=${verification.stop}>Stop<//>` : html`<${Button} kind="primary" icon="shield-check" type="submit">Verify<//>`}
          <span class="hint">Reads the log itself and compares it with hash chains and signatures. Who runs this server could also change its answers: a verification to be trusted runs elsewhere, with the command.</span>
        </div>
      </form>
    </section>
    <${Progress} verification=${verification} />
    ${verification.state.result ? html`<${Verdict} result=${verification.state.result} />` : null}
    <${Checkpoints} />
  </div>`;
}

/** One verification at a time: it ends when the page is left. */
function useVerification() {
  const [state, setState] = useState(/** @type {any} */ ({ ...NOTHING, isRunning: false, isStopped: false }));
  const stream = useRef(/** @type {{stop: () => void} | null} */ (null));
  useEffect(() => () => stream.current?.stop(), []);
  const begin = (body) => {
    stream.current?.stop();
    setState({ ...NOTHING, isRunning: true, isStopped: false });
    stream.current = follow(log.verifyPath, {
      method: "POST",
      body,
      isEnd: (frame) => frame.event === "result" || frame.event === "error",
      onFrames: (frames) => setState((before) => ({ ...before, ...fold(before, frames) })),
      onState: (now, error) => {
        if (now !== "ended") return;
        setState((before) => ({ ...before, isRunning: false, error: before.error ?? error ?? (before.result ? null : new Error("The server ended the verification before its result.")) }));
      },
    });
  };
  const stop = () => {
    stream.current?.stop();
    setState((before) => ({ ...before, isRunning: false, isStopped: true }));
  };
  return { state, isRunning: state.isRunning, begin, stop };
}

function Progress({ verification }) {
  const { state, isRunning } = verification;
  const error = state.error && !(state.error instanceof Error) ? Object.assign(new Error(state.error.error), { code: state.error.code }) : state.error;
  if (error) return html`<p class="note bad" role="alert"><b>Not verified.</b> ${error.message}${error.code ? html` <code>${error.code}</code>` : null}</p>`;
  if (state.result) return null;
  if (!isRunning) return state.isStopped ? html`<p class="note" role="status">Stopped after ${formatCount(state.records)} records. Nothing can be said of the rest.</p>` : null;
  return html`<section class="card" aria-label="Progress"><div class="inside fields">
    <p role="status"><b>Verifying…</b> <span class="number">${formatCount(state.records)} records in ${formatDuration(state.seconds * 1_000)}</span></p>
    ${state.places.map(
      (place) => html`<div class="log-progress" key=${`${place.topic}/${place.partition}`}><span class="mono">${place.topic}/${place.partition}</span>
        <progress max=${Math.max(1, place.end_offset)} value=${place.next_offset} aria-label=${`${place.topic}/${place.partition}`}></progress>
        <span class="number dim">${formatCount(place.next_offset)} of ${formatCount(place.end_offset)}</span></div>`,
    )}
  </div></section>`;
}

const SIGNATURES = { valid: ["good", "valid"], invalid: ["bad", "invalid"], unknown_key: ["warn", "unknown key"] };

function Checkpoints() {
  const [count, setCount] = useState("1");
  const checkpoints = useResource((signal) => log.checkpoints({ limit: count }, { signal }).then((answer) => answer.checkpoints), [count], { everyMs: CHECKPOINTS_EVERY_MS });
  return html`<section class="card" aria-labelledby="checkpoints-title">
    <header><h2 id="checkpoints-title">Newest checkpoints</h2><${Field} label="Of each partition" inline value=${count} options=${["1", "3", "10", "20"]} onInput=${setCount} /></header>
    <${Resource} of=${checkpoints}>${(rows) => html`<${PlainTable}
      label="Newest checkpoints" rows=${rows} rowKey=${(one) => one.position}
      empty=${html`<${Empty} icon="shield-check" title="Nothing is signed yet" command="loomlog audit keygen audit.key"><p>The auditor signs what is in the log. Make a key, set LOOMLOG_AUDIT_KEY_FILE to it and start again with loomlog up.</p><//>`}
      columns=${[
        { key: "topic", title: "Partition", sort: (one) => `${one.topic}/${one.partition}`, cell: (one) => html`<a class="mono nowrap" href=${link(`/log/${one.topic}/${one.partition}`, { from: Math.max(0, one.next_offset - 1) })}>${one.topic}/${one.partition}</a>` },
        { key: "range", title: "Offsets", align: "right", sort: (one) => one.next_offset, cell: (one) => html`<span class="nowrap">${formatCount(one.first_offset)} to ${formatCount(one.next_offset)}</span>` },
        { key: "records", title: "Records", align: "right", cell: (one) => formatCount(one.records) },
        { key: "unsigned", title: "Unsigned since", align: "right", sort: (one) => one.unsigned, cell: (one) => formatCount(one.unsigned) },
        { key: "at", title: "Signed", sort: (one) => one.at, cell: (one) => html`<span class="nowrap"><${Time} at=${one.at} relative /></span>` },
        { key: "signature", title: "Signature", cell: (one) => html`<${Chip} tone=${SIGNATURES[one.signature][0]}>${SIGNATURES[one.signature][1]}<//>` },
        { key: "key", title: "Key", cell: (one) => html`<${Id} id=${one.key_id} short=${0} />` },
        { key: "chain", title: "Running hash", cell: (one) => html`<${Id} id=${one.chain} />` },
      ]}
    />`}<//>
  </section>`;
}
