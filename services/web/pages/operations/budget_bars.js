// The use of a budget limit as bars, with the numbers beside them.
import { html } from "../../ui.js";
import { formatCount, formatMoney } from "../../components/time.js";
import { accountOf, metersOf } from "./budget_model.js";

/** @param {{limit: any}} properties a limit of GET /v1/_limits */
export function BudgetBars({ limit }) {
  return html`<div class="budget">${metersOf(limit).map((meter) => html`<${Bar} key=${meter.unit} meter=${meter} account=${accountOf(limit)} />`)}</div>`;
}

function Bar({ meter, account }) {
  const amount = (value) => (meter.unit === "money" ? formatMoney(value, meter.currency) : `${formatCount(value)} tokens`);
  const most = meter.hard ?? meter.soft;
  const softAt = meter.soft !== null && meter.hard ? Math.min(100, (meter.soft / meter.hard) * 100) : null;
  return html`<div class="budget-line">
    <span class=${`budget-bar ${meter.state}`} role="meter" aria-label=${`Used by ${account}, ${meter.unit}`} aria-valuemin="0" aria-valuemax=${most} aria-valuenow=${Math.min(meter.used, most)} aria-valuetext=${`${amount(meter.used)} of ${amount(most)}`}>
      <i style=${{ width: `${meter.share * 100}%` }}></i>${softAt === null ? null : html`<b style=${{ left: `${softAt}%` }} title=${`soft limit: ${amount(meter.soft)}`}></b>`}
    </span>
    <span class="number nowrap">${amount(meter.used)} <span class="dim">of ${amount(most)}${meter.hard === null ? " (soft)" : ""}</span>${meter.state === "bad" ? html` <strong class="bad">used up</strong>` : meter.state === "warn" ? html` <strong class="warn">above the soft limit</strong>` : null}${meter.reserved ? html` <span class="dim">+ ${amount(meter.reserved)} reserved</span>` : null}</span>
  </div>`;
}
