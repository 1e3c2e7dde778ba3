// Access: users, tokens and credentials. Who changed what of them is among the acts of the operations page.
import { html } from "../ui.js";
import { TabbedPage } from "../components/tabbed_page.js";

const TABS = [
  { key: "users", title: "Users", icon: "users", scope: "substrate:tenant", load: () => import("./access/users.js"), takesRest: true },
  { key: "tokens", title: "Tokens", icon: "shield-check", scope: "substrate:admin", load: () => import("./access/tokens.js") },
  { key: "credentials", title: "Credentials", icon: "lock", scope: "substrate:tenant", load: () => import("./access/credentials.js") },
];

/** @param {{params: {rest?: string}}} properties rest: the key of a tab, with the subject of a user behind that of users */
export default function Access({ params }) {
  return html`<${TabbedPage} title="Access" path="/access" tabs=${TABS} wanted=${params.rest ?? ""} />`;
}
