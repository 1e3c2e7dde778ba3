// The controls of the filter: buttons by status with their counts, a panel of fields, and filters saved under a name.
import { html, useEffect, useState } from "../../ui.js";
import { agents } from "../../api.js";
import { Button, CopyButton, Field } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { Icon } from "../../components/icon.js";
import { formatCount, formatTime } from "../../components/time.js";
import { link, navigate } from "../../router.js";
import { me } from "../../session.js";
import { savedFilters } from "../../settings.js";
import { STATUSES, WAITS, addressOf, commandOf } from "./filter.js";

const PAGE = "runs";
const RANGES = { "": "any time", "15m": "the last 15 minutes", "1h": "the last hour", "24h": "the last 24 hours", "7d": "the last 7 days", "30d": "the last 30 days" };

/** A value of a filter as people read it. @param {string} name @param {string} value */
export function labelOf(name, value) {
  if (name !== "from" && name !== "to") return value;
  return RANGES[value] ?? (formatTime(value) || value);
}

/** @param {{filter: import("./filter.js").Filter, counts: any, onChoose: (status: string, waits?: string) => void}} properties */
export function StatusButtons({ filter, counts, onChoose }) {
  const total = counts ? STATUSES.reduce((sum, status) => sum + counts[status], 0) : null;
  const count = (value, isExact) => (value === null || value === undefined ? null : html`<small class="count">${formatCount(value)}${isExact ? "" : "+"}</small>`);
  const button = (status, waits, title, number) => html`<button
    type="button" class="button small" key=${status + waits} aria-pressed=${filter.status === status && filter.waits === waits} onClick=${() => onChoose(status, waits)}
  >${title}${number}</button>`;
  return html`
    ${button("", "", "All", count(total, counts?.is_exact))}
    ${STATUSES.map((status) => button(status, "", status[0].toUpperCase() + status.slice(1), count(counts?.[status], status === "running" ? counts?.is_live_exact : counts?.is_exact)))}
    ${Object.entries(WAITS)
      .filter(([waits]) => counts?.waiting?.[waits] || filter.waits === waits)
      .map(([waits, words]) => button("", waits, words[0].toUpperCase() + words.slice(1), count(counts?.waiting?.[waits] ?? 0, counts?.is_live_exact)))}
  `;
}

/** All fields of the filter; nothing is asked before "Apply". @param {{filter: import("./filter.js").Filter, onClose: () => void}} properties */
export function FilterPanel({ filter, onClose }) {
  const [draft, setDraft] = useState(filter);
  const [names, setNames] = useState(/** @type {string[]} */ ([]));
  useEffect(() => {
    agents.runnable().then(
      (answer) => setNames(answer.agents.map((agent) => agent.name)),
      () => {},
    );
  }, []);
  const set = (name) => (value) => setDraft((before) => ({ ...before, [name]: value.trim() }));
  const apply = (event) => {
    event.preventDefault();
    const query = addressOf(draft);
    navigate("/runs" + (query ? `?${query}` : ""));
    onClose();
  };
  const isAgo = draft.from in RANGES;
  return html`<form class="card filter-panel" onSubmit=${apply} onKeyDown=${(event) => event.key === "Escape" && onClose()} aria-label="Filters">
    <div class="inside fields two">
      <${Field} label="Agent" value=${draft.agent} onInput=${set("agent")} list=${names} autofocus />
      <${Field} label="User" value=${draft.user_id} onInput=${set("user_id")} />
      ${me.value?.is_admin ? html`<${Field} label="Tenant" value=${draft.tenant} onInput=${set("tenant")} />` : null}
      <${Field} label="Session" value=${draft.session_id} onInput=${set("session_id")} placeholder="s_…" code />
      <${Field} label="Tree of the run" value=${draft.root} onInput=${set("root")} placeholder="r_…" hint="The root and all sub-agents below it." code />
      <${Field} label="Version of the agent" value=${draft.def_id} onInput=${set("def_id")} placeholder="def_…" code />
      <${Field} label="Id begins or ends with" value=${draft.id} onInput=${set("id")} hint="Of the run, its handle, session or version, as pages shorten it." code />
      <${Field} label="Started" value=${isAgo ? draft.from : "between"} options=${[...Object.entries(RANGES).map(([value, title]) => ({ value, title })), { value: "between", title: "between two times" }]}
        onInput=${(value) => setDraft((before) => ({ ...before, from: value === "between" ? new Date(Date.now() - 3_600_000).toISOString() : value, to: "" }))} />
      ${isAgo ? null : html`<${Field} label="From" type="datetime-local" value=${localOf(draft.from)} onInput=${(value) => set("from")(isoOf(value))} step="1" />
        <${Field} label="Before" type="datetime-local" value=${localOf(draft.to)} onInput=${(value) => set("to")(isoOf(value))} step="1" />`}
    </div>
    <footer class="actions"><${Button} kind="primary" type="submit">Apply<//><${Button} onClick=${onClose}>Close<//><span class="grow"></span><${CopyButton} text=${commandOf(draft, Date.now())} label="Copy as a command line"><small>as command line </small><//></footer>
  </form>`;
}

/** Local time for an input. @param {string} iso */
function localOf(iso) {
  const at = new Date(iso);
  if (Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
}

/** @param {string} local */
function isoOf(local) {
  const at = new Date(local);
  return Number.isNaN(at.getTime()) ? "" : at.toISOString();
}

/** @param {{filter: import("./filter.js").Filter}} properties */
export function SavedFilters({ filter }) {
  const [isOpen, setOpen] = useState(false);
  const saved = savedFilters.value[PAGE] ?? [];
  const query = addressOf(filter);
  const isSaved = saved.some((one) => one.query === query);
  return html`
    ${saved.map((one) => html`<a class=${`chip saved${one.query === query ? " info" : ""}`} href=${link("/runs") + (one.query ? `?${one.query}` : "")} aria-current=${one.query === query ? "true" : undefined} key=${one.name}><${Icon} name="bookmark" size=${12} /><span><bdi>${one.name}</bdi></span></a>`)}
    ${(query && !isSaved) || saved.length ? html`<${Button} small kind="quiet" icon="bookmark" onClick=${() => setOpen(true)}>${query && !isSaved ? "Save this filter" : "Saved filters"}<//>` : null}
    ${isOpen ? html`<${SavedDialog} query=${query} isSaved=${isSaved} onClose=${() => setOpen(false)} />` : null}
  `;
}

function SavedDialog({ query, isSaved, onClose }) {
  const [name, setName] = useState("");
  const saved = savedFilters.value[PAGE] ?? [];
  const keep = (list) => (savedFilters.value = { ...savedFilters.value, [PAGE]: list });
  const save = (event) => {
    event.preventDefault();
    if (!name.trim()) return;
    keep([...saved.filter((one) => one.name !== name.trim()), { name: name.trim(), query }]);
    onClose();
  };
  return html`<${Dialog} title="Saved filters" onClose=${onClose}>
    ${query && !isSaved
      ? html`<form class="bar" onSubmit=${save}><${Field} label="Name of this filter" value=${name} onInput=${setName} autofocus hint="Kept in this browser. A name that exists is replaced." /><${Button} kind="primary" type="submit" icon="save" isDisabled=${!name.trim()}>Save<//></form>
        <p class="dim"><code>${query}</code></p>`
      : null}
    ${saved.length
      ? html`<ul class="rows-list">${saved.map((one) => html`<li key=${one.name}><a href=${link("/runs") + (one.query ? `?${one.query}` : "")} onClick=${onClose}><bdi>${one.name}</bdi></a><span class="dim grow"><code>${one.query}</code></span><${Button} small kind="quiet" icon="trash-2" label=${`Delete the filter ${one.name}`} onClick=${() => keep(saved.filter((other) => other !== one))} /></li>`)}</ul>`
      : html`<p class="dim">There are no saved filters.</p>`}
  <//>`;
}
