// The choice of an agent: a list to search in, with description, model and tools of the chosen one.
import { html, useEffect, useMemo, useRef, useState } from "../../ui.js";
import { Chip } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { LongText } from "../../components/json.js";
import { Empty } from "../../components/states.js";
import { link } from "../../router.js";

const TOOLS_MAX = 24;

/** @param {{agents: any[], value: string, onChange: (name: string) => void, problem?: string}} properties */
export function AgentPicker({ agents, value, onChange, problem }) {
  const [search, setSearch] = useState("");
  const list = useRef(/** @type {HTMLElement | null} */ (null));
  const found = useMemo(() => {
    const words = search.toLowerCase().split(/\s+/).filter(Boolean);
    const fitting = agents.filter((agent) => words.every((word) => `${agent.name} ${agent.model ?? ""} ${agent.description}`.toLowerCase().includes(word)));
    // Names that fit come before descriptions that do.
    const byName = (agent) => words.every((word) => agent.name.toLowerCase().includes(word));
    return words.length ? [...fitting.filter(byName), ...fitting.filter((agent) => !byName(agent))] : fitting;
  }, [agents, search]);
  const chosen = agents.find((agent) => agent.name === value);
  useEffect(() => {
    list.current?.querySelector("input:checked")?.closest("label")?.scrollIntoView({ block: "nearest" });
  }, []);
  const toList = (event) => {
    if (event.key !== "ArrowDown" && event.key !== "Enter") return;
    event.preventDefault();
    const first = /** @type {HTMLInputElement | null | undefined} */ (list.current?.querySelector("input:checked") ?? list.current?.querySelector("input"));
    if (event.key === "Enter" && found[0]) onChange(found[0].name);
    first?.focus();
  };
  if (!agents.length)
    return html`<${Empty} icon="bot" title="There is no agent that you may run" command="loomlog init ."><p>An agent is a block of the configuration file, or a definition made in the library.</p><//>`;
  return html`<fieldset class="agents" aria-describedby=${problem ? "agent-problem" : undefined}>
    <legend>Agent</legend>
    <div class="search"><${Icon} name="search" size=${14} /><input aria-label="Search agents" placeholder=${`Search ${agents.length} agents`} value=${search} onInput=${(event) => setSearch(event.currentTarget.value)} onKeyDown=${toList} spellcheck="false" /></div>
    <div class="options" ref=${list}>
      ${found.map(
        (agent) => html`<label key=${agent.name} class=${agent.name === value ? "chosen" : ""}>
          <input type="radio" name="agent" value=${agent.name} checked=${agent.name === value} onChange=${() => onChange(agent.name)} />
          <span class="name"><bdi>${agent.name}</bdi></span>
          ${agent.available ? null : html`<${Icon} name="triangle-alert" size=${13} /><span class="spoken">not available now</span>`}
          <span class="about dim"><bdi>${agent.description || agent.model || ""}</bdi></span>
        </label>`,
      )}
      ${found.length ? null : html`<p class="dim">No agent fits “<bdi>${search}</bdi>”.</p>`}
    </div>
    ${problem ? html`<p class="problem" id="agent-problem">${problem}</p>` : null}
    ${chosen ? html`<${AgentFacts} agent=${chosen} />` : null}
  </fieldset>`;
}

/** @param {{agent: Api.RunnableAgent}} properties */
function AgentFacts({ agent }) {
  return html`<div class="facts-box">
    ${agent.available ? null : html`<p class="note warn">${agent.unavailable_reason ?? "None of its models can be used now."}</p>`}
    ${agent.description ? html`<p><${LongText} text=${agent.description} /></p>` : null}
    <dl class="facts">
      <dt>Model</dt><dd><bdi>${agent.model ?? "as routed"}</bdi>${agent.provider ? html` <span class="dim">of ${agent.provider}</span>` : null}</dd>
      <dt>Tools</dt><dd class="actions">${agent.tools.length ? agent.tools.slice(0, TOOLS_MAX).map((tool) => html`<${Chip} key=${tool}><bdi>${tool}</bdi><//>`) : html`<span class="dim">none</span>`}${agent.tools.length > TOOLS_MAX ? html`<span class="dim">and ${agent.tools.length - TOOLS_MAX} more</span>` : null}</dd>
      <dt>Source</dt><dd>${agent.source} <a href=${link("/runs", { agent: agent.name })}>its runs</a></dd>
    </dl>
  </div>`;
}
