// The configuration as it is: agents that may be run, aliases of models, presets, and the variables of the environment.
import { html, useMemo, useState } from "../../ui.js";
import { agents, operations } from "../../api.js";
import { Button, Chip, CopyButton } from "../../components/controls.js";
import { Json } from "../../components/json.js";
import { Code } from "../../components/markdown.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { may } from "../../session.js";
import { settingsOf } from "./settings_model.js";

const PARTS = [
  { key: "agents", title: "Agents", scope: "runs:read", view: Agents },
  { key: "aliases", title: "Model aliases", scope: "tenant:read", view: Aliases },
  { key: "presets", title: "Presets", scope: "substrate:admin", view: Presets },
  { key: "environment", title: "Environment", scope: "substrate:admin", view: Environment },
];
const SOURCES = { bundled: "a file", tenant: "made at run time" };

export default function Configuration() {
  const allowed = PARTS.filter((part) => may(part.scope));
  const part = allowed.find((one) => one.key === here.value.query.get("part")) ?? allowed[0];
  return html`<div class="bar" role="group" aria-label="Part of the configuration">${allowed.map((one) => html`<${Button} key=${one.key} small isPressed=${one === part} onClick=${() => setQuery({ part: one === allowed[0] ? "" : one.key, name: "", q: "" })}>${one.title}<//>`)}</div><${part.view} key=${part.key} />`;
}

const contains = (value) => html`<input class="search" type="search" aria-label="Search names" placeholder="Search names" value=${value} onInput=${(event) => setQuery({ q: event.currentTarget.value })} />`;

function Agents() {
  const text = here.value.query.get("q") ?? "";
  const name = here.value.query.get("name") ?? "";
  const list = useResource(() => agents.runnable(), []);
  return html`<${Resource} of=${list}>${(data) => {
    const rows = data.agents.filter((one) => one.name.toLowerCase().includes(text.toLowerCase()));
    return html`<div class=${name ? "halves" : "fields"}>
      <section class="card"><header><h2>${formatCount(rows.length)} ${rows.length === 1 ? "agent" : "agents"}</h2>${contains(text)}</header><div class="scrolls tall" tabindex="0" role="group" aria-label="Agents"><${PlainTable} label="Agents" rows=${rows} rowKey=${(one) => one.name} rowClass=${(one) => (one.name === name ? "selected" : "")}
        empty=${text ? html`<p class="state quiet">No name contains this.</p>` : html`<${Empty} icon="bot" title="There is no agent" command="loomlog init"><p>Agents are under <code>agents:</code> in a configuration file, or made in <a href=${link("/library")}>the library</a>.</p><//>`}
        columns=${[
          { key: "name", title: "Agent", sort: (one) => one.name, cell: (one) => html`<a href=${link("/operations/configuration", { name: one.name, q: text })}><bdi>${one.name}</bdi></a>` },
          { key: "state", title: "State", sort: (one) => one.available, cell: (one) => (one.available ? html`<${Chip} tone="good" icon="circle-check">available<//>` : html`<${Chip} tone="bad" icon="circle-x" title=${one.unavailable_reason ?? ""}>not available<//>`) },
          { key: "model", title: "Model", sort: (one) => `${one.provider}/${one.model}`, cell: (one) => html`<bdi>${one.model ?? ""}</bdi> <small class="dim">${one.provider ?? ""}</small>` },
          { key: "source", title: "From", hidden: Boolean(name), sort: (one) => one.source, cell: (one) => SOURCES[one.source] ?? one.source },
          { key: "tools", title: "Tools", align: "right", hidden: Boolean(name), sort: (one) => one.tools.length, cell: (one) => html`<span title=${one.tools.join(", ")}>${formatCount(one.tools.length)}</span>` },
          { key: "what", title: "Description", hidden: Boolean(name), cell: (one) => html`<bdi class="soft wraps">${one.unavailable_reason ?? one.description}</bdi>` },
        ]} /></div></section>
      ${name ? html`<${Agent} key=${name} name=${name} />` : null}
    </div>`;
  }}<//>`;
}

function Agent({ name }) {
  const one = useResource(() => agents.one(name), [name]);
  return html`<section class="card"><header><h2><bdi>${name}</bdi></h2>${may("runs:create") ? html`<${Button} small icon="play" href=${link("/start", { agent: name })}>Start<//>` : null}<${Button} small href=${link(`/library/agent/${encodeURIComponent(name)}`)}>Library<//><${Button} kind="quiet" small icon="x" label="Close" onClick=${() => setQuery({ name: "" })} /></header>
    <${Resource} of=${one}>${(agent) => html`<div class="inside fields">
      ${agent.available ? null : html`<p class="note bad">${agent.unavailable_reason}</p>`}
      <dl class="facts">
        <dt>Model</dt><dd><bdi>${agent.provider}/${agent.model}</bdi></dd>
        <dt>From</dt><dd>${SOURCES[agent.source] ?? agent.source}</dd>
        <dt>Tools</dt><dd>${agent.tools.length ? html`<span class="chips">${agent.tools.map((tool) => html`<${Chip} key=${tool}>${tool}<//>`)}</span>` : html`<span class="dim">none</span>`}</dd>
        ${agent.volumes.length ? html`<dt>Volumes</dt><dd>${agent.volumes.join(", ")}</dd>` : null}
      </dl>
      <h3>Definition, where it differs from the defaults</h3>
      <${Json} value=${agent.definition} label="Definition" />
    </div>`}<//></section>`;
}

function Aliases() {
  const list = useResource((signal) => operations.aliases({ signal }), []);
  return html`<section class="card"><header><h2>Model aliases</h2></header><${Resource} of=${list}>${({ models }) => html`<${PlainTable} label="Model aliases" rows=${models} rowKey=${(one) => one.name}
    empty=${html`<${Empty} icon="bookmark" title="There is no alias yet" command="loomlog presets show base"><p>Names for models are under <code>models:</code> in a configuration file; the preset base has those of each vendor.</p><//>`}
    columns=${[
      { key: "name", title: "Alias", sort: (one) => one.name, cell: (one) => html`<strong><bdi>${one.name}</bdi></strong>` },
      { key: "provider", title: "Provider", sort: (one) => one.provider, cell: (one) => html`<bdi>${one.provider}</bdi>` },
      { key: "model", title: "Model", cell: (one) => (one.model ? html`<bdi>${one.model}</bdi>` : html`<span class="dim">the newest of</span> <code>${one.model_pattern}</code>`) },
      { key: "effort", title: "Effort", cell: (one) => one.effort ?? html`<span class="dim">–</span>` },
    ]} />`}<//></section>`;
}

function Presets() {
  const name = here.value.query.get("name") ?? "";
  const list = useResource((signal) => operations.presets({ signal }), []);
  return html`<section class="card"><header><h2>Presets</h2><small class="dim">layers of configuration that come with the program</small></header><${Resource} of=${list}>${({ units }) => html`<${PlainTable} label="Presets" rows=${units} rowKey=${(one) => one.name} rowClass=${(one) => (one.name === name ? "selected" : "")} columns=${[
      { key: "name", title: "Preset", cell: (one) => html`<a href=${link("/operations/configuration", { part: "presets", name: one.name })}>${one.name}</a>` },
      { key: "what", title: "What it has", cell: (one) => one.description },
    ]} />`}<//></section>
    ${name ? html`<${Preset} key=${name} name=${name} />` : null}`;
}

function Preset({ name }) {
  const one = useResource((signal) => operations.preset(name, { signal }), [name]);
  return html`<section class="card"><header><h2>${name}</h2>${one.data ? html`<${CopyButton} text=${one.data.content} label="Copy the YAML" />` : null}<${Button} kind="quiet" small icon="x" label="Close" onClick=${() => setQuery({ name: "" })} /></header><${Resource} of=${one}>${({ content }) => html`<div class="inside"><${Code} text=${content} language="yaml" /></div>`}<//></section>`;
}

/** The variables that the program knows, with their defaults. What they are set to on the server is not told: some are secrets. */
function Environment() {
  const text = here.value.query.get("q") ?? "";
  const template = useResource((signal) => operations.environment({ signal }), []);
  const [isWhole, setWhole] = useState(false);
  const settings = useMemo(() => (template.data === undefined ? [] : settingsOf(template.data)), [template.data]);
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const found = settings.filter((one) => words.every((word) => `${one.name}\n${one.what}`.toLowerCase().includes(word)));
  return html`<section class="card"><header><h2>Variables of the environment</h2>${isWhole ? null : contains(text)}<${Button} small isPressed=${isWhole} onClick=${() => setWhole(!isWhole)}>As a file<//>${template.data ? html`<${CopyButton} text=${template.data} label="Copy the file" />` : null}</header>
    <${Resource} of=${template}>${(file) =>
      isWhole
        ? html`<div class="inside"><${Code} text=${file} language="bash" /></div>`
        : html`<div class="scrolls tall" tabindex="0" role="group" aria-label="Variables"><${PlainTable} label="Variables" rows=${found} rowKey=${(one) => one.name} empty=${html`<p class="state quiet">No variable says this.</p>`} columns=${[
            { key: "name", title: "Variable", sort: (one) => one.name, cell: (one) => html`<code>${one.name}</code><${CopyButton} text=${one.name} label=${`Copy ${one.name}`} />` },
            { key: "initial", title: "Default", cell: (one) => (one.initial ? html`<code class="wraps">${one.initial}</code>` : html`<span class="dim">empty</span>`) },
            { key: "what", title: "What it is", cell: (one) => one.what },
            { key: "group", title: "Part", sort: (one) => one.group, cell: (one) => html`<span class="dim">${one.group}</span>` },
          ]} /></div>`}<//>
    <p class="inside hint">What the variables are set to on the server is not told here. <code>loomlog doctor</code> on its machine checks them.</p></section>`;
}
