// Which model each plan and tier gets, and whether providers and their models are available.
import { html, useState } from "../../ui.js";
import { operations } from "../../api.js";
import { Button, Chip } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { Icon } from "../../components/icon.js";
import { Empty, ErrorState, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { Time, formatCount } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { may } from "../../session.js";
import { modelState, stateOf } from "./routing_model.js";

const EVERY_MS = 10_000;

export default function Routing() {
  const isAdmin = may("substrate:admin");
  const routing = useResource((signal) => operations.routing({ signal }), [], { everyMs: EVERY_MS });
  const resolver = useResource((signal) => (isAdmin ? operations.resolver({ signal }) : Promise.resolve(null)), [], { everyMs: isAdmin ? EVERY_MS : 0 });
  const probe = useAction();
  const run = () => probe.run(async () => {
    resolver.setData(await operations.probe());
    routing.reload();
    toast("All usable providers have been probed.");
  });
  return html`
    <section class="card"><header><h2>Plans and tiers</h2><small class="dim">the first available model of a row is taken</small></header>
      <${Resource} of=${routing}>${(data) => html`<${Plans} routing=${data} />`}<//></section>
    <section class="card"><header><h2>Providers</h2>${isAdmin ? html`<${Button} icon="radio" isBusy=${probe.isBusy} title="Ask a runtime to reach each provider and list its models" onClick=${run}>Probe now<//>` : null}</header>
      ${probe.error ? html`<div class="inside"><${ErrorState} error=${probe.error} compact /></div>` : null}
      <${Resource} of=${routing}>${(data) => html`<${Providers} providers=${data.providers} resolver=${resolver.data ?? undefined} />`}<//></section>
    ${isAdmin ? html`<section class="card"><header><h2>Availability of models</h2>${resolver.data ? html`<small class="dim">as of <${Time} at=${resolver.data.generated_at} /></small>` : null}</header><${Resource} of=${resolver}>${(data) => (data ? html`<${Matrix} resolver=${data} />` : null)}<//></section>` : null}
  `;
}

/** @param {{routing: Api.Routing}} properties */
function Plans({ routing }) {
  const rows = routing.user_tiers.flatMap((plan) => plan.tiers.map((tier) => ({ plan: plan.name, ...tier })));
  return html`${routing.operator_key_restricted ? html`<p class="inside note">Your runs may not use the operator's keys: a provider counts as available only with a key of your own.</p>` : null}
    <${PlainTable} label="Plans and tiers" rows=${rows} rowKey=${(row) => `${row.plan}/${row.tier}`} empty=${html`<${Empty} icon="network" title="No tier has a model" command="loomlog init"><p>Name models under <code>tiers:</code> in a configuration file; the preset base has the best models of each provider.</p><//>`} columns=${[
      { key: "plan", title: "Plan", cell: (row) => html`<bdi>${row.plan}</bdi>` },
      { key: "tier", title: "Tier", cell: (row) => html`<strong>${row.tier}</strong>` },
      { key: "models", title: "Models in order", cell: (row) => html`<ol class="cascade">${row.cascade.map((choice, at) => html`<li key=${at}>${at ? html`<${Icon} name="chevron-right" size=${13} />` : null}<${Choice} choice=${choice} /></li>`)}</ol>` },
    ]} />`;
}

/** @param {{choice: Api.ModelChoiceStatus}} properties */
function Choice({ choice }) {
  const [tone, icon, words] = stateOf(choice);
  return html`<${Chip} tone=${tone} icon=${icon} title=${words}><bdi>${choice.provider}/${choice.model}</bdi><span class="spoken">: ${words}</span><//>`;
}

/** @param {{providers: Api.ProviderStatus[], resolver: Api.Resolver | undefined}} properties */
function Providers({ providers, resolver }) {
  const [listed, setListed] = useState("");
  const isAdmin = may("substrate:admin");
  const seen = (one) => resolver?.providers[one.provider];
  const rank = (one) => (one.available ? (one.reachable ? 0 : 1) : 2);
  const rows = [...providers].sort((a, b) => rank(a) - rank(b));
  return html`<${PlainTable} label="Providers" rows=${rows} rowKey=${(one) => one.provider} columns=${[
      { key: "provider", title: "Provider", sort: (one) => one.provider, cell: (one) => html`<bdi>${one.provider}</bdi> <small class="dim">${one.driver === one.provider ? "" : one.driver}</small>` },
      { key: "state", title: "State", sort: rank, cell: (one) => (one.available ? (one.reachable ? html`<${Chip} tone="good" icon="circle-check">available<//>` : html`<${Chip} tone="bad" icon="circle-x">does not answer<//>`) : html`<${Chip} icon="circle-slash">not usable<//>`) },
      { key: "why", title: "Why", cell: (one) => html`<bdi class="wraps soft">${(isAdmin ? seen(one)?.last_error : "") || one.why_not || ""}</bdi>` },
      { key: "dialect", title: "Dialect", sort: (one) => one.dialect, cell: (one) => html`<code>${one.dialect}</code>` },
      { key: "most", title: "Calls at once", align: "right", sort: (one) => one.max_concurrent, cell: (one) => (one.max_concurrent ? formatCount(one.max_concurrent) : html`<span class="dim">no limit</span>`) },
      { key: "models", title: "Models", align: "right", hidden: !isAdmin, sort: (one) => Object.keys(seen(one)?.models ?? {}).length, cell: (one) => formatCount(Object.keys(seen(one)?.models ?? {}).length) },
      { key: "check", title: "Probed", hidden: !isAdmin, cell: (one) => html`<${Time} at=${seen(one)?.last_check} relative />` },
      { key: "act", title: html`<span class="spoken">Actions</span>`, align: "right", hidden: !isAdmin, cell: (one) => (one.available ? html`<${Button} small onClick=${() => setListed(one.provider)}>List models<//>` : null) },
    ]} />
    ${listed ? html`<${ModelList} provider=${listed} onClose=${() => setListed("")} />` : null}`;
}

/** The models as the provider lists them now, to this api. */
function ModelList({ provider, onClose }) {
  const list = useResource((signal) => operations.models(provider, { signal }), [provider]);
  const [text, setText] = useState("");
  return html`<${Dialog} title=${`Models of ${provider}`} onClose=${onClose}>
    <input type="search" class="search" aria-label="Search names" placeholder="Search names" value=${text} onInput=${(event) => setText(event.currentTarget.value)} />
    <${Resource} of=${list}>${({ models }) => {
      const found = models.filter((name) => name.toLowerCase().includes(text.toLowerCase()));
      return html`<p class="dim">${formatCount(found.length)} of ${formatCount(models.length)}</p><ul class="plain-list">${found.map((name) => html`<li key=${name}><code><bdi>${name}</bdi></code></li>`)}</ul>`;
    }}<//>
  <//>`;
}

/** A row for each provider that lists models, with a chip for each model. @param {{resolver: Api.Resolver}} properties */
function Matrix({ resolver }) {
  const [text, setText] = useState("");
  const rows = Object.values(resolver.providers).filter((one) => Object.keys(one.models).length);
  const fits = (/** @type {[string, any]} */ [name]) => name.toLowerCase().includes(text.toLowerCase());
  if (!rows.length) return html`<${Empty} icon="network" title="No provider has listed its models" command="loomlog routing --probe"><p>Runtimes probe the usable providers when they start, and then now and again.</p><//>`;
  return html`<div class="inside"><input type="search" class="search" aria-label="Search models" placeholder="Search models" value=${text} onInput=${(event) => setText(event.currentTarget.value)} /></div>
    <div class="scrolls" tabindex="0" role="group" aria-label="Availability of models"><${PlainTable} label="Availability of models" rows=${rows} rowKey=${(one) => one.provider} columns=${[
      { key: "provider", title: "Provider", cell: (one) => html`<bdi>${one.provider}</bdi>` },
      { key: "models", title: "Models", cell: (one) => html`<span class="chips">${Object.entries(one.models).filter(fits).map(([name, model]) => html`<${Model} key=${name} name=${name} model=${model} provider=${one} />`)}</span>` },
    ]} /></div>`;
}

/** @param {{name: any, model: Api.ModelStatus, provider: Api.ProviderAvailability}} properties */
function Model({ name, model, provider }) {
  const [tone, icon, words] = modelState(model, provider);
  return html`<${Chip} tone=${tone} icon=${icon} title=${words}><bdi>${name}</bdi><span class="spoken">: ${words}</span>${model.rate_limited ? html` until <${Time} at=${model.rate_limited_until} />` : null}<//>`;
}
