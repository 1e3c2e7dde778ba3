// What was active at a moment, beside what is active now.
import { html, useState } from "../../ui.js";
import { library } from "../../api.js";
import { Button, Chip, Field } from "../../components/controls.js";
import { RecordLink } from "../../components/record_link.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount, formatTime, toMs } from "../../components/time.js";
import { usePageTitle } from "../../frame.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { KINDS, definitionPath, kindNamed } from "./kinds.js";

const HOUR_MS = 3_600_000;
const STEPS = [["An hour ago", 1], ["Yesterday", 24], ["A week ago", 24 * 7], ["30 days ago", 24 * 30]];

/** The value of a field for date and time, in local time. @param {number} ms */
function localValue(ms) {
  const date = new Date(ms - new Date(ms).getTimezoneOffset() * 60_000);
  return date.toISOString().slice(0, 19);
}

export function PastPage() {
  usePageTitle("Definitions as of a time");
  const query = here.value.query;
  const tenant = query.get("tenant") ?? "";
  const kind = kindNamed(query.get("kind") ?? "");
  const name = query.get("name") ?? "";
  const time = query.get("time") ?? "";
  const [first] = useState(() => Date.now() - HOUR_MS);
  const at = toMs(time) || first;
  const [text, setText] = useState(localValue(at));
  const show = (ms) => (setText(localValue(ms)), setQuery({ time: new Date(ms).toISOString() }, { replace: false }));

  const answer = useResource(
    async (signal) => {
      const filter = { kind: kind?.kind, name, tenant };
      const [then, today] = await Promise.all([
        library.at({ ...filter, time: new Date(at).toISOString() }, { signal }),
        library.at({ ...filter, time: new Date().toISOString() }, { signal }),
      ]);
      return { then: then.definitions, now: new Map(today.definitions.map((one) => [key(one), one])) };
    },
    [at, kind?.kind ?? "", name, tenant],
  );

  return html`<div class="page">
    <header>
      <nav class="crumbs" aria-label="Where you are"><a href=${link("/library", { tenant })}>Library</a></nav>
      <h1>As of a time</h1>
      <p class="sub">The versions that were active at a moment, made active before it. Definitions of configuration files are not kept in the log and are not shown here.</p>
    </header>
    <form class="bar" onSubmit=${(event) => (event.preventDefault(), !Number.isNaN(toMs(text)) && show(toMs(text)))}>
      <${Field} label="Time" type="datetime-local" step="1" inline value=${text} onInput=${setText} max=${localValue(Date.now() + 60_000)} />
      <${Field} label="Kind" inline value=${kind?.kind ?? ""} onInput=${(value) => setQuery({ kind: value })} options=${[{ value: "", title: "all" }, ...KINDS.map((one) => ({ value: one.kind, title: one.many }))]} />
      <${Button} kind="primary" type="submit" isDisabled=${Number.isNaN(toMs(text))}>Show<//>
      ${STEPS.map(([title, hours]) => html`<${Button} key=${title} small kind="quiet" onClick=${() => show(Date.now() - Number(hours) * HOUR_MS)}>${title}<//>`)}
      ${name ? html`<${Chip}><bdi>${name}</bdi> only<//><${Button} small kind="quiet" onClick=${() => setQuery({ name: "" })}>all names<//>` : null}
    </form>
    <${Resource} of=${answer}>
      ${({ then, now }) => html`<section class="card">
        <header><h2>${formatCount(then.length)} active at ${formatTime(at)}</h2><span class="dim"><${Time} at=${at} relative /></span></header>
        <${PlainTable}
          label="Active definitions"
          rows=${then}
          rowKey=${key}
          empty=${html`<${Empty} icon="clock" title="Nothing was active then" command="loomlog defs at TIME"><p>No version ${kind ? `of this kind ` : ""}had been made active before this time.</p><//>`}
          columns=${[
            { key: "kind", title: "Kind", sort: (row) => row.kind, cell: (row) => html`<span class="nowrap">${kindNamed(row.kind)?.one ?? row.kind}</span>` },
            { key: "name", title: "Name", sort: (row) => row.name, cell: (row) => html`<a href=${link(definitionPath(row.kind, row.name), { tenant })}><bdi>${row.name}</bdi></a>${row.tenant_id ? null : html` <${Chip}>shared<//>`}` },
            { key: "version", title: "Version", align: "right", sort: (row) => row.version, cell: (row) => html`<a class="nowrap" href=${link(definitionPath(row.kind, row.name), { v: row.active_def_id, tenant })}>version ${row.version}</a>` },
            { key: "now", title: "Now", sort: (row) => nowWord(row, now), cell: (row) => sinceThen(row, now, tenant) },
            { key: "since", title: "Active since", align: "right", sort: (row) => row.promoted_at, cell: (row) => html`<span class="nowrap"><${Time} at=${row.promoted_at} /></span>` },
            { key: "record", title: "Record", cell: (row) => html`<${RecordLink} position=${row.position} />` },
            { key: "by", title: "By", sort: (row) => row.promoted_by, cell: (row) => html`<bdi>${row.promoted_by || "–"}</bdi>` },
            { key: "why", title: "Reason", cell: (row) => html`<bdi class="soft">${row.why || "–"}</bdi>` },
          ]}
        />
      </section>`}
    <//>
  </div>`;
}

const key = (one) => `${one.tenant_id}/${one.kind}/${one.name}`;

/** @param {Api.ActiveDefinition} row */
function nowWord(row, now) {
  const current = now.get(key(row));
  if (!current) return "none";
  return current.active_def_id === row.active_def_id ? "the same" : `version ${current.version}`;
}

/** @param {Api.ActiveDefinition} row */
function sinceThen(row, now, tenant) {
  const word = nowWord(row, now);
  const current = now.get(key(row));
  if (word === "the same") return html`<span class="dim nowrap">the same</span>`;
  if (!current) return html`<span class="warn nowrap">none is active</span>`;
  return html`<a href=${link(definitionPath(row.kind, row.name), { v: current.active_def_id, with: row.active_def_id, view: "changes", tenant })} class="nowrap" title="Compare with the version of then">${word}</a>`;
}
