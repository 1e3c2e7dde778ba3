// Usage: who used how many tokens and what it cost, by tenant, user, agent, model or day; as bars, a table and CSV.
import { html, useMemo } from "../ui.js";
import { usage } from "../api.js";
import { Button, Checkbox, Chip, Field } from "../components/controls.js";
import { Chart } from "../components/chart.js";
import { Empty, ErrorState, Resource } from "../components/states.js";
import { Table } from "../components/table.js";
import { TenantField } from "../components/tenant.js";
import { formatCount, formatMoney, formatShort, now } from "../components/time.js";
import { useResource } from "../resource.js";
import { here, link, setQuery } from "../router.js";
import { may } from "../session.js";
import { DIMENSIONS, MEASURES, RANGES, csvOf, daysOf, dimensionsOf, filtered, rangeOf, rangeProblem, ranked, timesOf, tokensOf, totalsOf } from "./usage/model.js";

const DEFAULT_RANGE = "30d";

export default function Usage() {
  const query = here.value.query;
  const dimensions = dimensionsOf(query.get("by"));
  const measure = query.get("measure") && MEASURES[query.get("measure") ?? ""] ? /** @type {string} */ (query.get("measure")) : "cost";
  const tenant = query.get("tenant") ?? "";
  const text = query.get("q") ?? "";
  const hasDays = query.has("from") || query.has("to");
  const named = hasDays ? "" : RANGES[query.get("range") ?? ""] ? /** @type {string} */ (query.get("range")) : DEFAULT_RANGE;
  const { from, to } = named ? rangeOf(named, now.peek()) : { from: query.get("from") ?? "", to: query.get("to") ?? "" };
  const problem = rangeProblem(from, to);
  const load = (groups) => (signal) => (problem ? Promise.resolve(/** @type {Api.UsageReport} */ ({ group_by: groups, from, to, rows: [] })) : usage.report({ group_by: groups.join(","), tenant, ...timesOf(from, to) }, { signal }));
  const report = useResource(load(dimensions), [dimensions.join(","), tenant, from, to]);
  const days = useResource(load(["day"]), [tenant, from, to]);
  const toggle = (name) => {
    const next = dimensions.includes(name) ? dimensions.filter((one) => one !== name) : [...dimensions, name];
    if (next.length) setQuery({ by: next.join(",") });
  };
  return html`<div class="page full usage-page">
    <header>
      <h1>Usage</h1>
      <span class="grow"></span>
      <${Button} icon="refresh-cw" label="Read again" isBusy=${report.isLoading && report.data !== undefined} onClick=${() => (report.reload(), days.reload())} />
    </header>
    <div class="bar usage-filters">
      <span class="bar" role="group" aria-label="Days">${Object.entries(RANGES).map(([key, title]) => html`<${Button} key=${key} small isPressed=${named === key} onClick=${() => setQuery({ range: key, from: "", to: "" })}>${title}<//>`)}</span>
      <${Field} label="From" inline type="date" value=${rangeProblem(from, "") ? "" : from} max=${problem ? undefined : to || undefined} onInput=${(value) => setQuery({ from: value, to, range: "" })} />
      <${Field} label="To" inline type="date" value=${rangeProblem("", to) ? "" : to} min=${problem ? undefined : from || undefined} onInput=${(value) => setQuery({ to: value, from, range: "" })} />
      <small class="dim">days in UTC</small>
      <${TenantField} placeholder="all" />
    </div>
    <div class="bar usage-filters">
      <span class="bar" role="group" aria-label="Rows for each"><span class="soft">Rows for each</span>${Object.entries(DIMENSIONS).map(([key, { title }]) => html`<${Checkbox} key=${key} label=${title} checked=${dimensions.includes(key)} onChange=${() => toggle(key)} />`)}</span>
      <span class="grow"></span>
      <${Field} label="Order and bars" inline value=${measure} options=${Object.entries(MEASURES).map(([value, title]) => ({ value, title }))} onInput=${(value) => setQuery({ measure: value === "cost" ? "" : value })} />
      <input class="search" type="search" aria-label="Search names" placeholder="Search names" value=${text} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />
    </div>
    ${problem ? html`<${ErrorState} error=${new Error(problem)} compact />` : html`<${Resource} of=${report}>${({ rows }) => html`<${Report} rows=${rows} days=${days.data?.rows} dimensions=${dimensions} measure=${measure} text=${text} from=${from} to=${to} tenant=${tenant} />`}<//>`}
  </div>`;
}

function Report({ rows, days, dimensions, measure, text, from, to, tenant }) {
  const found = useMemo(() => ranked(filtered(rows, dimensions, text), measure), [rows, dimensions.join(","), measure, text]);
  const totals = useMemo(() => totalsOf(found), [found]);
  const shown = useMemo(() => [...totals.map((total) => ({ ...total, isTotal: true })), ...found].map((row, at) => ({ ...row, key: String(at) })), [found, totals]);
  const columns = useMemo(() => columnsOf(dimensions, measure, { from, to, tenant }), [dimensions.join(","), measure, from, to, tenant]);
  if (!rows.length) return html`<${Empty} icon="coins" title="Nothing was used in these days" command="loomlog usage --by tenant,model"><p>Usage is counted with each answer of a model. Choose other days, or <a href=${link("/start")}>start a run</a>.</p><//>`;
  return html`
    <${Figures} totals=${totals} />
    ${days?.length && !text ? html`<${Days} rows=${days} from=${from} to=${to} />` : null}
    <div class="bar"><h2 class="grow">${formatCount(found.length)} ${found.length === 1 ? "row" : "rows"}${text ? html` <span class="dim">of ${formatCount(rows.length)}</span>` : null}</h2>
      <${Button} icon="download" isDisabled=${!found.length} onClick=${() => save(csvOf(found, dimensions), `usage-${from || "begin"}-${to || "today"}.csv`)}>Download CSV<//></div>
    <${Table} label="Usage" columns=${columns} rows=${found.length ? shown : []} rowKey=${(row) => row.key} rowClass=${(row) => (row.isTotal ? "total" : "")} empty=${html`<${Empty} title="No name contains this"><p class="actions"><${Button} onClick=${() => setQuery({ q: "" })}>Show all<//></p><//>`} />
  `;
}

function Figures({ totals }) {
  const sum = (amount) => totals.reduce((total, row) => total + amount(row), 0);
  const priced = totals.filter((row) => row.currency);
  const unpriced = sum((row) => row.unpriced_calls);
  return html`<dl class="figures">
    ${(priced.length ? priced : [null]).map((row) => html`<div key=${row?.currency ?? ""}><dt>Cost${priced.length > 1 ? ` in ${row.currency}` : ""}</dt><dd>${row ? html`${formatMoney(row.cost_micros)} <small>${row.currency}</small>` : "–"}</dd></div>`)}
    <div><dt>Input tokens</dt><dd title=${formatCount(sum((row) => row.input_tokens))}>${formatShort(sum((row) => row.input_tokens))}</dd></div>
    <div><dt>Output tokens</dt><dd title=${formatCount(sum((row) => row.output_tokens))}>${formatShort(sum((row) => row.output_tokens))}</dd></div>
    <div><dt>Cached tokens</dt><dd title="read from and written to the provider's cache">${formatShort(sum((row) => row.cache_read_input_tokens + row.cache_creation_input_tokens))}</dd></div>
    <div><dt>Calls</dt><dd>${formatCount(sum((row) => row.call_count))}</dd></div>
    <div title="calls of models whose price the configuration does not know; they are in no cost"><dt>Calls without a price</dt><dd class=${unpriced ? "warn" : ""}>${formatCount(unpriced)}</dd></div>
  </dl>`;
}

function Days({ rows, from, to }) {
  const days = useMemo(() => daysOf(rows, from, to), [rows, from, to]);
  if (days.times.length < 2) return null;
  const tokens = [{ name: "input", tone: "c2", values: days.input }, { name: "output", tone: "c1", values: days.output }, { name: "cached", tone: "c8", values: days.cached }];
  return html`<div class="charts">
    ${days.costs.map(({ currency, values }) => html`<section class="card" key=${currency}><header><h2>Cost, each day</h2><small class="dim">${currency}</small></header><div class="inside"><${Chart} title=${`Cost, each day, ${currency}`} times=${days.times} series=${[{ name: currency, tone: "c4", values }]} stacked days height=${120} format=${(micros) => formatMoney(micros)} /></div></section>`)}
    <section class="card"><header><h2>Tokens, each day</h2></header><div class="inside"><${Chart} title="Tokens, each day" times=${days.times} series=${tokens} stacked days height=${120} format=${formatShort} /></div></section>
  </div>`;
}

function columnsOf(dimensions, measure, { from, to, tenant }) {
  const last = dimensions[0];
  const names = dimensions.map((name) => ({
    key: name,
    title: DIMENSIONS[name].title,
    width: name === "day" ? "6.5rem" : "minmax(7rem, 1.2fr)",
    cell: (row) => (row.isTotal ? (name === last ? html`<strong>${row.currency ? `All in ${row.currency}` : "Unpriced"}</strong>` : null) : html`<${Name} name=${name} row=${row} from=${from} to=${to} tenant=${tenant} />`),
  }));
  const number = (key, title, amount) => ({ key, title, width: "6.5rem", align: /** @type {const} */ ("right"), cell: (row) => html`<span title=${formatCount(amount(row))}>${formatShort(amount(row))}</span>` });
  return [
    ...names,
    { key: "bar", title: "Share", width: "minmax(5rem, .8fr)", cell: (row) => (row.isTotal ? null : html`<span class="share" aria-hidden="true"><i style=${{ width: `${row.share * 100}%` }}></i></span>`) },
    { key: "cost", title: "Cost", width: "8.5rem", align: /** @type {const} */ ("right"), cell: (row) => (row.currency ? html`${formatMoney(row.cost_micros)} <small class="dim">${row.currency}</small>` : html`<${Chip} title="The configuration knows no price of this model: its calls are in no cost">no price<//>`) },
    number("input", "Input", (row) => row.input_tokens),
    number("output", "Output", (row) => row.output_tokens),
    number("cached", "Cached", (row) => row.cache_read_input_tokens + row.cache_creation_input_tokens),
    ...(measure === "tokens" ? [number("all", "All tokens", tokensOf)] : []),
    number("calls", "Calls", (row) => row.call_count),
  ];
}

/** A name that leads to the runs behind the row, where the list of runs can be filtered so. */
function Name({ name, row, from, to, tenant }) {
  const value = row[DIMENSIONS[name].column];
  if (value === null || value === undefined || value === "") return html`<span class="dim">none</span>`;
  const filter = { tenant: row.tenant_id ?? tenant, agent: row.agent, user_id: row.user_id, ...(row.day ? timesOf(row.day, row.day) : timesOf(from, to)) };
  const isFilter = ["tenant", "user", "agent", "day"].includes(name);
  return isFilter && may("runs:read") ? html`<a href=${link("/runs", filter)} title=${`The runs of ${value}`}><bdi>${value}</bdi></a>` : html`<bdi title=${value}>${value}</bdi>`;
}

/** Gives the browser a file that was made here. */
function save(text, name) {
  const address = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  const anchor = document.createElement("a");
  anchor.href = address;
  anchor.download = name;
  document.body.append(anchor);
  anchor.click();
  anchor.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
