// How a budget was used up over the days of this month, beside its limits.
import { html, useMemo } from "../../ui.js";
import { usage } from "../../api.js";
import { Chart } from "../../components/chart.js";
import { Field } from "../../components/controls.js";
import { Resource } from "../../components/states.js";
import { formatMoney, formatShort, now } from "../../components/time.js";
import { printJson } from "../../exact_json.js";
import { useResource } from "../../resource.js";
import { here, setQuery } from "../../router.js";
import { accountOf, keyOf, metersOf, monthOf, monthQuery, tightest } from "./budget_model.js";

const EVERY_MS = 60_000;

/** @param {{limits: any[]}} properties at least one. The address says which is shown as `budget`; else the one of which most is used */
export function BudgetMonth({ limits }) {
  const wanted = here.value.query.get("budget") ?? "";
  const limit = limits.find((one) => keyOf(one) === wanted) ?? tightest(limits);
  const key = keyOf(limit);
  const report = useResource((signal) => usage.report(monthQuery(limit, now.peek()), { signal }), [key], { everyMs: EVERY_MS });
  return html`<div class="inside fields budget-month">
    <${Field} label="Over this month" inline value=${key} options=${limits.map((one) => ({ value: keyOf(one), title: accountOf(one) }))} onInput=${(value) => setQuery({ budget: value })} />
    <${Resource} of=${report} rows=${3}>${({ rows }) => metersOf(limit).map((meter) => html`<${Month} key=${key + meter.unit} rows=${rows} limit=${limit} unit=${meter.unit} />`)}<//>
  </div>`;
}

function Month({ rows, limit, unit }) {
  const month = useMemo(() => monthOf(rows, limit, unit, now.peek()), [rows, printJson(limit), unit]);
  const format = unit === "money" ? (micros) => formatMoney(micros, limit.currency) : formatShort;
  return html`<${Chart} title=${`Used by ${accountOf(limit)} in this month, ${unit}`} times=${month.times} series=${month.series} days height=${120} format=${format} />`;
}
