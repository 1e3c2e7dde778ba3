// The log itself: topics and their records, dead letters, verification of what was signed, and what the read models lack.
import { html } from "../ui.js";
import { ApiError } from "../api.js";
import { Tabs } from "../components/controls.js";
import { ErrorState } from "../components/states.js";
import { usePageTitle } from "../frame.js";
import { navigate } from "../router.js";
import { AggregateJump } from "./log/aggregate.js";
import { AuditTab } from "./log/audit.js";
import { DeadLetters } from "./log/dead_letters.js";
import { PartitionPage } from "./log/partition.js";
import { ProjectionsTab } from "./log/projections.js";
import { TopicPage, Topics } from "./log/topics.js";

const TABS = [
  { key: "", title: "Topics", icon: "layers", view: Topics },
  { key: "dead-letters", title: "Dead letters", icon: "octagon-x", view: DeadLetters },
  { key: "audit", title: "Audit", icon: "shield-check", view: AuditTab },
  { key: "projections", title: "Projections", icon: "database", view: ProjectionsTab },
];

/** @param {{params: {rest?: string}}} properties rest: a tab, or topic/partition */
export default function Log({ params }) {
  const [first = "", second, ...others] = (params.rest ?? "").split("/");
  const tab = TABS.find((one) => one.key === first);
  usePageTitle(tab ? (tab.key ? `${tab.title} · Log` : "Log") : [first, second].filter(Boolean).join("/"));
  if (first === "aggregate" && second !== undefined) return html`<${AggregateJump} id=${[second, ...others].join("/")} />`;
  if (!tab) {
    if (others.length || (second !== undefined && !/^\d+$/.test(second))) return html`<${ErrorState} isPage error=${new ApiError(404, "not_found", `There is no page /log/${params.rest}: records are at /log/<topic>/<partition>.`)} />`;
    return second === undefined ? html`<${TopicPage} key=${first} topic=${first} />` : html`<${PartitionPage} key=${params.rest} topic=${first} partition=${second} />`;
  }
  return html`<div class="page full log">
    <header><h1>Log</h1></header>
    <${Tabs} label="Parts of the log" tabs=${TABS} selected=${tab.key} onSelect=${(key) => navigate(`/log${key ? `/${key}` : ""}`)} />
    <${tab.view} offset=${tab.key === "dead-letters" ? second : undefined} />
  </div>`;
}
