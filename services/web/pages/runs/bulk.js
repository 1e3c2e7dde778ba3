// Orders to many runs: those selected, or all of the filter; first what would happen, then the outcome of each.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { ApiError, runs } from "../../api.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { ErrorState, Loading } from "../../components/states.js";
import { RunStatus } from "../../components/status.js";
import { PlainTable } from "../../components/table.js";
import { formatCount } from "../../components/time.js";
import { link } from "../../router.js";
import { me } from "../../session.js";
import { useResource } from "../../resource.js";
import { apiQueryOf, whereOf } from "./filter.js";
import { rowOf } from "./rows.js";

const ORDERS = {
  pause: { title: "Pause", icon: "pause", about: "They finish the calls under way and stop before their next model call." },
  resume: { title: "Resume", icon: "play", about: "They go on where they stopped. Pauses of the agent, the tenant or all runs still apply." },
  cancel: { title: "Cancel", icon: "circle-x", about: "They end, with all sub-agents below them. This cannot be undone." },
};
/** Runs of a filter that are ordered one by one, where the server has no single order for them. */
const SINGLE_MAX = 1_000;
const PAGE = 500;
const SHOWN_MAX = 200;
/** Refusals that mean that there was nothing to do. */
const UNCHANGED = new Set(["not_found", "already_pausing", "not_paused", "already_completed"]);

/** @param {string} order @param {any} row */
function canChange(order, row) {
  if (!row.live) return false;
  if (order === "pause") return !row.quarantined && !row.pause_requested;
  if (order === "resume") return row.pause_requested && !row.quarantined;
  return true;
}

/** @param {{rows: any[], filter: any, onClear: () => void, onDone: () => void}} properties rows: the selected ones */
export function BulkBar({ rows, filter, onClear, onDone }) {
  const [order, setOrder] = useState("");
  const [isWhole, setWhole] = useState(false);
  return html`<div class="bar note bulk" role="region" aria-label="Selected runs">
    <strong>${isWhole ? "All runs of this filter" : `${formatCount(rows.length)} selected`}</strong>
    <${Button} small isPressed=${isWhole} onClick=${() => setWhole(!isWhole)}>All of this filter<//>
    <span class="grow"></span>
    ${Object.entries(ORDERS).map(([name, one]) => html`<${Button} small kind=${name === "cancel" ? "danger" : ""} icon=${one.icon} key=${name} onClick=${() => setOrder(name)}>${one.title}<//>`)}
    <${Button} small kind="quiet" icon="x" onClick=${onClear}>Clear<//>
  </div>
  ${order ? html`<${BulkDialog} order=${order} rows=${rows} filter=${filter} isWhole=${isWhole} onClose=${(isDone) => (setOrder(""), isDone && (onClear(), onDone()))} />` : null}`;
}

/** What an order would reach: {matched, hasMore, first, where} with where for one order of the server, else all rows. */
async function previewOf(order, rows, filter, isWhole) {
  if (!isWhole) {
    const reached = rows.filter((row) => canChange(order, row));
    return { matched: reached.length, hasMore: false, first: reached, all: reached, where: "", ended: rows.length - reached.length };
  }
  const now = Date.now();
  const { where } = whereOf(filter, now);
  if (where && me.value?.is_admin) {
    const answer = await runs.bulk({ action: order, where, dry_run: true });
    return { matched: answer.matched ?? 0, hasMore: answer.more ?? false, first: (answer.runs ?? []).map(rowOf), all: [], where, ended: 0 };
  }
  const all = [];
  let cursor = "";
  do {
    const answer = await runs.list({ ...apiQueryOf(filter, now), status: "running", limit: PAGE, cursor });
    all.push(...answer.runs.map(rowOf).filter((row) => canChange(order, row)));
    cursor = answer.next ?? "";
  } while (cursor && all.length < SINGLE_MAX);
  return { matched: Math.min(all.length, SINGLE_MAX), hasMore: Boolean(cursor) || all.length > SINGLE_MAX, first: all, all: all.slice(0, SINGLE_MAX), where: "", ended: 0 };
}

async function orderOne(order, row, reason) {
  try {
    if (order === "pause") await runs.pause(row.run_id, reason ? { reason } : {});
    else if (order === "resume") await runs.resume(row.run_id);
    else await runs.cancel(row.agent_id, { run_id: row.run_id, ...(reason ? { reason } : {}) });
    return { run_id: row.run_id, outcome: "changed", error: null };
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    return { run_id: row.run_id, outcome: UNCHANGED.has(error.code) ? "unchanged" : "failed", error: error.message };
  }
}

function BulkDialog({ order, rows, filter, isWhole, onClose }) {
  const preview = useResource(() => previewOf(order, rows, filter, isWhole), []);
  const [reason, setReason] = useState("");
  const [results, setResults] = useState(/** @type {any[] | null} */ (null));
  const [isRunning, setRunning] = useState(false);
  const [error, setError] = useState(/** @type {any} */ (null));
  const isStopped = useRef(false);
  useEffect(() => () => void (isStopped.current = true), []);
  const about = ORDERS[order];

  async function go() {
    if (!preview.data) return;
    const { where, all } = preview.data;
    setRunning(true);
    setError(null);
    let done = [];
    const add = (more) => {
      done = [...done, ...more];
      setResults(done);
    };
    add([]);
    try {
      let cursor = "";
      if (where) {
        do {
          const answer = await runs.bulk({ action: order, where, dry_run: false, ...(reason ? { reason } : {}), ...(cursor ? { cursor } : {}) });
          add(answer.results ?? []);
          cursor = answer.next ?? "";
        } while (cursor && !isStopped.current);
      } else {
        for (const row of all) {
          if (isStopped.current) break;
          add([await orderOne(order, row, reason)]);
        }
      }
    } catch (failure) {
      setError(failure);
    }
    setRunning(false);
  }

  const data = preview.data;
  const number = data ? `${formatCount(data.matched)}${data.hasMore ? "+" : ""} ${data.matched === 1 ? "run" : "runs"}` : "runs";
  const buttons = results
    ? html`${isRunning ? html`<${Button} icon="square" onClick=${() => (isStopped.current = true)}>Stop after this one<//>` : null}<${Button} kind="primary" isDisabled=${isRunning} onClick=${() => onClose(true)}>Close<//>`
    : html`<${Button} onClick=${() => onClose(false)}>Keep as it is<//><${Button} kind=${order === "cancel" ? "danger" : "primary"} icon=${about.icon} isDisabled=${!data?.matched} onClick=${go}>${about.title} ${number}<//>`;
  return html`<${Dialog} title=${`${about.title} ${number}`} wide onClose=${() => !isRunning && onClose(results !== null)} actions=${buttons}>
    ${results
      ? html`<${Results} results=${results} total=${data?.matched ?? 0} isRunning=${isRunning} />`
      : preview.error
        ? html`<${ErrorState} error=${preview.error} onRetry=${preview.reload} compact />`
        : !data
          ? html`<${Loading} rows=${3} label="Finding the runs" />`
          : html`<p>${about.about}</p>
              ${data.ended ? html`<p class="note warn">${formatCount(data.ended)} of the selected runs have ended or are in that state already; nothing happens to them.</p>` : null}
              ${data.hasMore ? html`<p class="note warn">There are more runs than could be counted.${data.where ? "" : ` The first ${formatCount(SINGLE_MAX)} are ordered; repeat it for the rest.`}</p>` : null}
              ${data.where ? html`<p class="dim">One order for <code>${data.where}</code>: runs that fit when it arrives.</p>` : null}
              ${order === "resume" ? null : html`<${Field} label="Reason" value=${reason} onInput=${setReason} hint="Kept in the log and shown with each run." />`}
              <${PlainTable} label="Runs that would change" rows=${data.first.slice(0, SHOWN_MAX)} rowKey=${(row) => row.run_id} empty=${html`<p class="dim">No run would change.</p>`} columns=${[
                { key: "status", title: "Status", cell: (row) => html`<${RunStatus} run=${row} />` },
                { key: "agent", title: "Agent", cell: (row) => html`<bdi>${row.agent}</bdi>` },
                { key: "run", title: "Run", cell: (row) => html`<${Id} id=${row.run_id} short=${8} />` },
                { key: "user", title: "User", cell: (row) => html`<bdi>${row.user_id}</bdi>` },
              ]} />
              ${data.matched > Math.min(data.first.length, SHOWN_MAX) ? html`<p class="dim">and ${formatCount(data.matched - Math.min(data.first.length, SHOWN_MAX))} more</p>` : null}`}
    ${error ? html`<${ErrorState} error=${error} compact />` : null}
  <//>`;
}

function Results({ results, total, isRunning }) {
  const count = (outcome) => results.filter((one) => one.outcome === outcome).length;
  const first = [...results.filter((one) => one.outcome === "failed"), ...results.filter((one) => one.outcome !== "failed")].slice(0, SHOWN_MAX);
  return html`<p class="actions" role="status">
      ${isRunning ? html`<progress max=${total || 1} value=${results.length} aria-label="Progress"></progress>` : null}
      <${Chip} tone="good">${formatCount(count("changed"))} changed<//><${Chip}>${formatCount(count("unchanged"))} unchanged<//>${count("failed") ? html`<${Chip} tone="bad">${formatCount(count("failed"))} failed<//>` : null}
    </p>
    <${PlainTable} label="Outcomes" rows=${first} rowKey=${(row) => row.run_id} empty=${html`<p class="dim">Nothing yet.</p>`} columns=${[
      { key: "run", title: "Run", cell: (row) => html`<${Id} id=${row.run_id} href=${link(`/runs/${row.run_id}`)} short=${8} />` },
      { key: "outcome", title: "Outcome", cell: (row) => html`<${Chip} tone=${{ changed: "good", failed: "bad" }[row.outcome] ?? ""}>${row.outcome}<//>` },
      { key: "error", title: "Why", cell: (row) => row.error ?? "" },
    ]} />`;
}
