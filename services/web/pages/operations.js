// Operations: pauses, limits, routing, snapshots, erasure, acts, health, configuration, hooks, families.
import { html } from "../ui.js";
import { TabbedPage } from "../components/tabbed_page.js";

const TABS = [
  { key: "pause", title: "Pause", icon: "pause", scope: "runs:create", load: () => import("./operations/pause.js") },
  { key: "limits", title: "Limits", icon: "coins", scope: "runs:read tenant:read", load: () => import("./operations/limits.js") },
  { key: "routing", title: "Routing", icon: "network", scope: "tenant:read", load: () => import("./operations/routing.js") },
  { key: "snapshots", title: "Snapshots", icon: "archive", scope: "substrate:admin", load: () => import("./operations/snapshots.js") },
  { key: "erasure", title: "Erasure", icon: "trash-2", scope: "substrate:tenant", load: () => import("./operations/erasure.js") },
  { key: "acts", title: "Acts", icon: "scroll-text", scope: "substrate:tenant", load: () => import("./operations/acts.js") },
  { key: "health", title: "Health", icon: "shield-check", scope: "substrate:admin", load: () => import("./operations/health.js") },
  { key: "configuration", title: "Configuration", icon: "settings", scope: "tenant:read", load: () => import("./operations/configuration.js") },
  { key: "hooks", title: "Hooks", icon: "link", scope: "substrate:tenant", load: () => import("./operations/hooks.js") },
  { key: "families", title: "Families", icon: "layers", scope: "substrate:tenant", load: () => import("./operations/families.js") },
];

/** @param {{params: {rest?: string}}} properties rest: the key of a tab */
export default function Operations({ params }) {
  return html`<${TabbedPage} title="Operations" path="/operations" tabs=${TABS} wanted=${params.rest ?? ""} />`;
}
