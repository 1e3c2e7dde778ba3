// A console for the SQL database of a scope: statements that read, their rows, and the tables there are.
import { html, signal, useRef, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, CopyButton } from "../../components/controls.js";
import { LongText } from "../../components/json.js";
import { Empty, ErrorState } from "../../components/states.js";
import { Table } from "../../components/table.js";
import { formatCount, formatDuration } from "../../components/time.js";
import { parseJson, printJson } from "../../exact_json.js";
import { useAction, useResource } from "../../resource.js";
import { oneLine } from "../../values.js";
import { columnType, nameOf, quoted, remembered } from "./model.js";

const KEY = "loomlog.sql";
const TABLES = "SELECT name, type, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND type IN ('table', 'view') ORDER BY name";

function stored() {
  try {
    const kept = parseJson(sessionStorage.getItem(KEY) ?? "[]");
    return Array.isArray(kept) ? kept.filter((one) => typeof one === "string") : [];
  } catch {
    return [];
  }
}

/** Statements of this tab, newest first. */
const history = signal(stored());

function keep(statement) {
  history.value = remembered(history.value, statement);
  try {
    sessionStorage.setItem(KEY, printJson(history.value));
  } catch {
    // A browser that keeps nothing: they last as long as the page.
  }
}

/** @param {{place: {scope: string, id: string}, tenant: string}} properties */
export function SqlConsole({ place, tenant }) {
  const of = { scope: place.scope, scope_id: place.id };
  const [statement, setStatement] = useState("");
  const [answer, setAnswer] = useState(/** @type {any} */ (null));
  const [selected, setSelected] = useState(/** @type {any} */ (null));
  const action = useAction();
  const field = useRef(/** @type {HTMLTextAreaElement | null} */ (null));
  const tables = useResource(() => memory.sql({ ...of, statement: TABLES }, { tenant }), [place.scope, place.id, tenant]);
  const run = async (text) => {
    if (!text.trim() || action.isBusy) return;
    setStatement(text);
    setSelected(null);
    keep(text.trim());
    const began = performance.now();
    const found = await action.run(() => memory.sql({ ...of, statement: text }, { tenant }));
    setAnswer(found ? { ...found, took: performance.now() - began } : null);
  };
  const typed = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) (event.preventDefault(), run(statement));
  };
  const rows = answer?.rows ?? [];
  return html`<div class="memory-sql">
    <aside class="stack" aria-label="Tables and statements">
      <section><h3>Tables</h3>
        ${tables.error ? html`<${ErrorState} error=${tables.error} onRetry=${tables.reload} compact />` : null}
        ${tables.data && !tables.data.rows.length ? html`<p class="hint">This scope has no table yet. Agents with sql_scopes make them with sql_exec of the Memory tool.</p>` : null}
        <ul class="memory-names">${(tables.data?.rows ?? []).map(([name, type, sql]) => html`<li class="line" key=${name}><button class="link" type="button" title=${sql ?? ""} onClick=${() => run(`SELECT * FROM ${quoted(name)} LIMIT 100`)}><bdi>${name}</bdi></button>${type === "view" ? html` <small class="dim">view</small>` : null}</li>`)}</ul>
      </section>
      ${history.value.length
        ? html`<section><h3>Statements of this tab</h3><ul class="memory-names">${history.value.map((one) => html`<li key=${one}><button class="link mono" type="button" title=${one} onClick=${() => (setStatement(one), field.current?.focus())}><bdi>${oneLine(one, 120)}</bdi></button></li>`)}</ul></section>`
        : null}
    </aside>
    <div class="memory-sql-main">
      <form class="stack" onSubmit=${(event) => (event.preventDefault(), run(statement))}>
        <textarea ref=${field} class="code" rows="4" aria-label="Statement" spellcheck="false" placeholder="SELECT … (SQLite; reads only)" value=${statement} onInput=${(event) => setStatement(event.currentTarget.value)} onKeyDown=${typed}></textarea>
        <div class="actions"><${Button} kind="primary" icon="play" type="submit" isBusy=${action.isBusy} isDisabled=${!statement.trim()}>Run<//><span class="hint">Ctrl+Enter. One SELECT, at most 1,000 rows and 2 s; nothing is changed.</span>
          <span class="grow"></span>${answer ? html`<span class="dim number" role="status">${formatCount(rows.length)} ${rows.length === 1 ? "row" : "rows"}${answer.truncated ? " (there are more)" : ""} in ${formatDuration(answer.took)}</span><${CopyButton} text=${printJson(rows.map((row) => Object.fromEntries(answer.columns.map((name, at) => [name, row[at]]))), null, 2)} label="Copy the rows as JSON" />` : null}</div>
      </form>
      ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
      ${answer
        ? html`<${Table} key=${statement} label="Rows" rows=${rows.map((values, at) => ({ at, values }))} rowKey=${(row) => String(row.at)} onOpen=${setSelected} onMark=${(row) => selected && setSelected(row)} rowClass=${(row) => (row.at === selected?.at ? "selected" : "")} rowHeight=${32}
            empty=${html`<${Empty} icon="database" title="No row"><p>The statement has no result.</p><//>`}
            columns=${answer.columns.map((name, at) => {
              const type = columnType(rows, at);
              const isNumber = type === "integer" || type === "real";
              return { key: String(at), title: html`<bdi>${name}</bdi> <small class="dim">${type}</small>`, width: isNumber ? "minmax(5rem, .6fr)" : "minmax(7rem, 1fr)", align: isNumber ? "right" : undefined, cell: (row) => html`<${Cell} value=${row.values[at]} />` };
            })}
          />`
        : action.error ? null : html`<${Empty} icon="terminal" title=${`The SQL database of ${nameOf(place.scope, place.id)}`}><p>Write a SELECT, or choose a table.</p><//>`}
      ${answer && selected
        ? html`<section class="card memory-row" aria-label="Row"><header><h2>Row ${selected.at + 1}</h2><${Button} small kind="quiet" icon="x" label="Close the row" onClick=${() => setSelected(null)} /></header><div class="inside"><dl class="facts">${answer.columns.map((name, at) => html`<dt key=${`name${at}`}><bdi>${name}</bdi></dt><dd key=${at}>${typeof selected.values[at] === "string" ? html`<${LongText} text=${selected.values[at]} />` : html`<${Cell} value=${selected.values[at]} />`}</dd>`)}</dl></div></section>`
        : null}
    </div>
  </div>`;
}

function Cell({ value }) {
  if (value === null) return html`<span class="dim">null</span>`;
  if (typeof value === "object") return html`<span class="dim" title="base64">${oneLine(value.$blob ?? value, 80)}</span>`;
  return html`<bdi class="mono">${typeof value === "string" ? oneLine(value, 200) : String(value)}</bdi>`;
}
