// What a start may say besides agent and prompt: whose it is, its limits, what the model may reach and see.
import { html } from "../../ui.js";
import { Checkbox, Field } from "../../components/controls.js";
import { me } from "../../session.js";

/** @param {{draft: any, problems: Record<string, string>, set: (changes: any) => void, isFanOut?: boolean}} properties */
export function Advanced({ draft, problems, set, isFanOut = false }) {
  const field = (name) => ({ value: draft[name], onInput: (value) => set({ [name]: value }), error: problems[name] });
  const isUsed = ["user_id", "user_tier", "hostList", "metadata", "session_id", "timeout", "agent_id"].some((name) => draft[name]) || draft.hosts !== "operator" || draft.interactive;
  return html`<details class="advanced" open=${isUsed}>
    <summary>More options</summary>
    <div class="inside fields two">
      ${me.value?.legacy || me.value?.is_admin ? html`<${Field} label="User" hint="The end user whose run it is; only the shared token may say it." ...${field("user_id")} />` : null}
      <${Field} label="Tier of the user" hint="Its plan, which may choose other models." ...${field("user_tier")} />
      ${isFanOut ? null : html`<${Field} label="Session to continue" placeholder="s_…" code ...${field("session_id")} />`}
      ${isFanOut ? null : html`<${Field} label="Handle" hint="A name of your choice; refused while another live run has it." code ...${field("agent_id")} />`}
      <${Field} label="Seconds of work" type="number" min="1" hint="Then the run fails; empty: as the agent says." ...${field("timeout")} />
      <${Field} label="Hosts that its tools may reach" value=${draft.hosts} onInput=${(hosts) => set({ hosts })} options=${[
        { value: "operator", title: "as the operator allows" },
        { value: "none", title: "none" },
        { value: "some", title: "only these" },
      ]} />
      ${draft.hosts === "some" ? html`<${Field} label="Hosts" hint="Separated by spaces; never more than the operator allows." placeholder="example.org docs.example.org" code ...${field("hostList")} />` : null}
    </div>
    <div class="inside fields">
      <${Field} label="Metadata (JSON)" rows=${3} code hint="Facts that the model may see; no secrets." placeholder=${'{"ticket": 17}'} ...${field("metadata")} />
      ${isFanOut ? null : html`<${Checkbox} label="Interactive" hint="It waits for further input at the end of a turn instead of ending." checked=${draft.interactive} onChange=${(interactive) => set({ interactive })} />`}
    </div>
  </details>`;
}
