// The kinds of definitions with their numbers, beside every list of the library.
import { html } from "../../ui.js";
import { library } from "../../api.js";
import { Icon } from "../../components/icon.js";
import { formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { link } from "../../router.js";
import { may } from "../../session.js";
import { KINDS } from "./kinds.js";

const PAGE_SIZE = 500;
/** Pages that are read for the numbers; of a longer library the rest is counted as "more". */
const PAGES_MAX = 4;

async function countAll(tenant, signal) {
  /** @type {Record<string, number>} */
  const counts = Object.fromEntries(KINDS.map((kind) => [kind.kind, 0]));
  let cursor = "";
  let isComplete = false;
  for (let page = 0; page < PAGES_MAX && !isComplete; page += 1) {
    const answer = await library.list({ tenant, limit: PAGE_SIZE, cursor }, { signal });
    for (const entry of answer.definitions) counts[entry.kind] = (counts[entry.kind] ?? 0) + 1;
    cursor = answer.next ?? "";
    isComplete = !cursor;
  }
  return { counts, isComplete };
}

/** @param {{current: string, tenant: string}} properties current: name of a kind, or "volumes" */
export function Shelves({ current, tenant }) {
  const mayRead = may("substrate:tenant");
  const counts = useResource((signal) => (mayRead ? countAll(tenant, signal) : Promise.resolve(null)), [tenant, mayRead]);
  const more = counts.data && !counts.data.isComplete ? "+" : "";
  const entry = (name, title, icon) => {
    const count = counts.data?.counts[name];
    return html`<a key=${name} href=${link(`/library/${name}`, { tenant })} aria-current=${name === current ? "page" : undefined}>
      <${Icon} name=${icon} /><span>${title}</span>${count === undefined ? null : html`<small class="count">${formatCount(count)}${more}</small>`}
    </a>`;
  };
  return html`<nav aria-label="Kinds of definitions">${KINDS.map((kind) => entry(kind.kind, kind.many, kind.icon))}${entry("volumes", "Volumes", "archive")}</nav>`;
}
