// The families of this server whose pages are made from their declarations.
import { html } from "../../ui.js";
import { entities } from "../../api.js";
import { Empty, Resource } from "../../components/states.js";
import { PlainTable } from "../../components/table.js";
import { useResource } from "../../resource.js";
import { link } from "../../router.js";
import { familiesOf } from "../entities/schema.js";

/** Pages of the web page for families that have one of their own. */
const OWN_PAGES = [
  ["/library", "Definitions", "agents, skills, teams and every other kind, with their versions"],
  ["/memory", "Memory", "what agents, users and tenants remember"],
  ["/channels", "Channels", "queues of messages"],
  ["/schedules", "Schedules", "runs at given times"],
  ["/webhooks", "Webhooks", "requests from outside"],
  ["/operations/limits", "Budgets", "limits of tokens and money"],
  ["/operations/hooks", "Hooks", "callbacks before and after tool calls"],
];

export default function Families() {
  const document = useResource((signal) => entities.document({ signal }), []);
  return html`
    <section class="card"><header><h2>Pages made from a declaration</h2></header><${Resource} of=${document}>${(openapi) => html`<${PlainTable}
      label="Families" rows=${familiesOf(openapi)} rowKey=${(family) => family.name}
      empty=${html`<${Empty} icon="layers" title="No family here has a list" command="export LOOMLOG_FAMILIES=your.module"><p>Set LOOMLOG_FAMILIES to the modules of families and restart the services; docs/FAMILIES.md makes one step by step.</p><//>`}
      columns=${[
        { key: "name", title: "Family", cell: (family) => html`<a href=${link(`/entities/${family.name}`)}>${family.name}</a>` },
        { key: "summary", title: "What it is", cell: (family) => family.summary },
        { key: "commands", title: "Commands", cell: (family) => family.commands.map((one) => one.verb).join(", ") || html`<span class="dim">none</span>` },
        { key: "questions", title: "Questions", cell: (family) => family.questions.map((one) => one.verb).join(", ") || html`<span class="dim">none</span>` },
      ]}
    />`}<//></section>
    <section class="card"><header><h2>Pages of their own</h2></header><${PlainTable} label="Pages of their own" rows=${OWN_PAGES} rowKey=${([path]) => path} columns=${[
      { key: "name", title: "Family", cell: ([path, title]) => html`<a href=${link(path)}>${title}</a>` },
      { key: "what", title: "What it is", cell: ([, , what]) => what },
    ]} /></section>
  `;
}
