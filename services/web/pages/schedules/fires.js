// What a schedule has fired, and the times that passed without a run; newest first.
import { html, useEffect, useRef } from "../../ui.js";
import { schedules } from "../../api.js";
import { Chip, Id } from "../../components/controls.js";
import { RecordLink } from "../../components/record_link.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { Time, formatCount, formatDuration } from "../../components/time.js";
import { usePages } from "../../resource.js";
import { link } from "../../router.js";
import { fireOf, withFirstPage } from "./model.js";

const LIMIT = 50;

/** @param {{def: string, mark: string}} properties mark: changes when something was fired, or a fire has ended */
export function Fires({ def, mark }) {
  const read = async (cursor, signal) => {
    const answer = await schedules.fires(def, { cursor, limit: LIMIT }, { signal });
    return { rows: answer.fires, next: answer.next };
  };
  const list = usePages(read, [def]);
  const before = useRef(mark);
  const change = useRef(list.replaceRows);
  change.current = list.replaceRows;
  useEffect(() => {
    if (before.current === mark) return undefined;
    before.current = mark;
    const abort = new AbortController();
    read("", abort.signal).then(
      ({ rows }) => change.current((old) => withFirstPage(old, rows)),
      () => {}, // the state that is read again says what is wrong
    );
    return () => abort.abort();
  }, [mark]);
  return html`<section class="card" aria-label="Fires">
    <header><h2>Fires</h2><span class="dim number">${list.rows.length ? `${formatCount(list.rows.length)}${list.isComplete ? "" : "+"} read` : ""}</span></header>
    ${list.error
      ? html`<${ErrorState} error=${list.error} onRetry=${list.reload} />`
      : html`<${Table}
          label="Fires"
          height="380px"
          rows=${list.rows}
          rowKey=${(fire) => fireOf(fire).key}
          href=${(fire) => (fire.run_id ? link(`/runs/${fire.run_id}`) : "")}
          onEnd=${list.more}
          isComplete=${list.isComplete}
          isLoading=${list.isLoading}
          empty=${html`<${Empty} icon="calendar-clock" title="It has not fired yet"><p>Fires of the last 90 days are here, with their runs, and times that passed without one.</p><//>`}
          columns=${[
            { key: "instant", title: "Time", width: "8.5rem", cell: (fire) => html`<${Time} at=${fire.instant} />` },
            { key: "outcome", title: "Outcome", width: "minmax(7rem, 9rem)", cell: (fire) => html`<${Chip} tone=${fireOf(fire).tone} title=${fireOf(fire).why}>${fireOf(fire).word}<//>` },
            { key: "run", title: "Run", width: "9rem", cell: (fire) => (fire.run_id ? html`<${Id} id=${fire.run_id} href=${link(`/runs/${fire.run_id}`)} />` : html`<span class="dim">none</span>`) },
            { key: "late", title: "Late by", width: "5.5rem", align: "right", cell: (fire) => (fire.late_ms === undefined ? html`<span class="dim">–</span>` : formatDuration(fire.late_ms)) },
            { key: "by", title: "How", width: "6rem", cell: (fire) => (fire.is_manual ? html`<${Chip} title="Run now">by hand<//>` : html`<span class="dim">at its time</span>`) },
            { key: "record", title: "Record", width: "4.5rem", cell: (fire) => html`<${RecordLink} position=${fire.position} />` },
            { key: "why", title: "Why", width: "minmax(9rem, 1fr)", cell: (fire) => html`<bdi class="soft" title=${fireOf(fire).why}>${fireOf(fire).why.slice(0, 300)}</bdi>` },
          ]}
        />`}
  </section>`;
}
