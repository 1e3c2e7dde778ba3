// Search of a scope by words and meaning, with what made the score of each hit.
import { html, useState } from "../../ui.js";
import { memory } from "../../api.js";
import { Button, Checkbox, Chip, Field } from "../../components/controls.js";
import { Empty, Resource } from "../../components/states.js";
import { Time, formatCount } from "../../components/time.js";
import { printJson } from "../../exact_json.js";
import { useResource } from "../../resource.js";
import { here, link, setQuery } from "../../router.js";
import { factText, marked, nameOf, pathOf, scoreParts, searchBody } from "./model.js";

const SOURCES = ["facts", "notes", "documents"];
const WEIGHTS = {
  semantic_weight: ["Weight of the ranks", "1"],
  recency_weight: ["Weight of age", "0"],
  recency_half_life_hours: ["Half-life of age (hours)", "168"],
  frequency_weight: ["Weight of use", "0"],
};
const NAMES = ["q", "top_k", "in", "sources", "dedup", "threshold", ...Object.keys(WEIGHTS)];
const TEXT_MAX = 600;

/** @param {{place: {scope: string, id: string}, tenant: string}} properties */
export function Search({ place, tenant }) {
  const { query } = here.value;
  const inAddress = Object.fromEntries(NAMES.map((name) => [name, query.get(name) ?? ""]));
  const [form, setForm] = useState(inAddress);
  const [round, setRound] = useState(0);
  const change = (changes) => setForm({ ...form, ...changes });
  const chosen = new Set(form.sources.split(",").filter(Boolean));
  const send = (event) => (event.preventDefault(), setQuery(form), setRound(round + 1));
  const hasOptions = NAMES.some((name) => !["q"].includes(name) && inAddress[name]);
  const body = searchBody({ ...inAddress, query: inAddress.q, prefix: inAddress.in, sources: inAddress.sources.split(",").filter(Boolean), scope: place.scope, scope_id: place.id });
  const found = useResource((signal) => (body.query ? memory.search(body, { tenant }, { signal }) : Promise.resolve(null)), [printJson(body), tenant, round]);
  return html`<div class="pane-scrolls">
    <form class="stack" role="search" onSubmit=${send}>
      <div class="bar nowrap-row">
        <input type="search" aria-label="Search for" placeholder="What is searched for, in plain words" value=${form.q} onInput=${(event) => change({ q: event.currentTarget.value })} />
        <${Button} kind="primary" icon="search" type="submit" isDisabled=${!form.q.trim()}>Search<//>
      </div>
      <details class="advanced" open=${hasOptions}><summary>Sources and ranks</summary><div class="inside stack">
        <div class="fields two">
          <${Field} label="Hits" type="number" min="1" max="50" value=${form.top_k} onInput=${(top_k) => change({ top_k })} placeholder="10" />
          <${Field} label="Keys that begin with" value=${form.in} onInput=${(prefix) => change({ in: prefix })} />
          ${Object.entries(WEIGHTS).map(([name, [label, placeholder]]) => html`<${Field} key=${name} label=${label} type="number" min="0" step="any" value=${form[name]} placeholder=${placeholder} onInput=${(value) => change({ [name]: value })} />`)}
          <${Field} label="Near copies" value=${form.dedup} onInput=${(dedup) => change({ dedup })} options=${[{ value: "", title: "are not looked for" }, { value: "drop", title: "only the best stays" }, { value: "merge", title: "the best names the others" }, { value: "keep", title: "all stay, marked" }]} />
          ${form.dedup ? html`<${Field} label="Least similarity of copies" type="number" min="0" max="1" step="0.01" value=${form.threshold} placeholder="0.92" onInput=${(threshold) => change({ threshold })} />` : null}
        </div>
        <div class="actions" role="group" aria-label="Sources">${SOURCES.map((name) => html`<${Checkbox} key=${name} label=${name} checked=${!chosen.size || chosen.has(name)} onChange=${(checked) => {
          const next = new Set(chosen.size ? chosen : SOURCES);
          if (checked) next.add(name);
          else next.delete(name);
          change({ sources: next.size === SOURCES.length || !next.size ? "" : SOURCES.filter((one) => next.has(one)).join(",") });
        }} />`)}</div>
      </div></details>
    </form>
    <${Resource} of=${found}>${(answer) => (answer ? html`<${Hits} answer=${answer} place=${place} tenant=${tenant} query=${body.query} weight=${body.rank?.semantic_weight ?? 1} />` : html`<${Empty} icon="search" title=${`Search ${nameOf(place.scope, place.id)}`} command=${`loomlog memory search "favourite colour"${place.scope === "user" ? ` --scope-id ${place.id}` : ` --scope ${place.scope}${place.id ? ` --scope-id ${place.id}` : ""}`}`}><p>Entries are found by their words, and by their meaning where they have a vector; both ranks make one.</p><//>`)}<//>
  </div>`;
}

function Hits({ answer, place, tenant, query, weight }) {
  const hits = answer.entries;
  const most = Math.max(...hits.map((hit) => hit.rank_score), 1e-9);
  return html`
    <p class="line dim" role="status">
      <span class="number">${hits.length ? `${formatCount(hits.length)} ${hits.length === 1 ? "hit" : "hits"}${answer.truncated ? ", and there are more" : ""}` : ""}</span>
      <span>${answer.query_embedding_dim ? `by words and by vectors of ${answer.query_embedding_dim} numbers` : "by words alone"}</span>
      ${answer.dedup_dropped ? html`<span>${formatCount(answer.dedup_dropped)} near copies left out</span>` : null}
    </p>
    ${answer.rank_note ? html`<p class="note warn">${answer.rank_note}</p>` : null}
    ${hits.length ? null : html`<${Empty} icon="search" title="Nothing is found"><p>No entry of this scope has these words${answer.query_embedding_dim ? " or is near their meaning" : ", and none was searched by its meaning"}. Try other words, or other sources.</p><//>`}
    <ol class="memory-hits">${hits.map((hit, at) => html`<${Hit} key=${hit.key} hit=${hit} at=${at} most=${most} place=${place} tenant=${tenant} query=${query} hasVectors=${answer.query_embedding_dim > 0} weight=${weight} />`)}</ol>`;
}

function Hit({ hit, at, most, place, tenant, query, hasVectors, weight }) {
  const text = hit.kind === "fact" ? factText(hit.value) : typeof hit.value === "string" ? hit.value : printJson(hit.value);
  const parts = scoreParts(hit, hasVectors, weight);
  const width = (value) => ({ width: `${(100 * value) / most}%` });
  const to = (key) => link(pathOf(place.scope, place.id), { tenant, key });
  return html`<li class="card">
    <div class="line"><b class="number dim">${at + 1}</b><a class="memory-key" href=${to(hit.key)}><bdi>${hit.key}</bdi></a><${Chip} tone=${hit.kind === "fact" ? "info" : ""}>${hit.kind}<//>
      ${hit.duplicate_of ? html`<${Chip} tone="warn">copy of ${hit.duplicate_of}<//>` : null}${(hit.merged ?? []).map((key) => html`<a key=${key} class="chip" href=${to(key)}><span>and ${key}</span></a>`)}
      <span class="grow"></span>${hit.expires_at ? html`<small class="dim">expires <${Time} at=${hit.expires_at} relative /></small>` : null}</div>
    <p class="text memory-text"><bdi>${marked(text.slice(0, TEXT_MAX), query).map((piece) => (piece.isMarked ? html`<mark>${piece.text}</mark>` : piece.text))}${text.length > TEXT_MAX ? "…" : ""}</bdi></p>
    <div class="memory-score">
      <span class="memory-bar" aria-hidden="true"><i class="words" style=${width(parts.words)}></i><i class="meaning" style=${width(parts.meaning)}></i><i class="other" style=${width(parts.other)}></i></span>
      <span class="number"><b>${parts.total.toFixed(3)}</b></span>
      <span class="line soft">
        <span class="words">${hit.ranks.lexical ? `by words: rank ${hit.ranks.lexical}, adds ${parts.words.toFixed(3)}` : "not by words"}</span>
        <span class="meaning">${hit.ranks.semantic ? `by meaning: rank ${hit.ranks.semantic}, cosine ${hit.score.toFixed(3)}, adds ${parts.meaning.toFixed(3)}` : hasVectors ? "not by meaning" : ""}</span>
        ${parts.other ? html`<span class="other">age and use add ${parts.other.toFixed(3)}</span>` : null}
        ${hit.embedded_with ? html`<span class="dim">${hit.embedded_with.provider}/${hit.embedded_with.model}</span>` : null}
      </span>
    </div>
  </li>`;
}
