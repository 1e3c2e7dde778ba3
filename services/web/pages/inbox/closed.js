// A question that is closed, or a notice: what was asked, and what came of it.
import { html } from "../../ui.js";
import { Chip, Id } from "../../components/controls.js";
import { LongText } from "../../components/json.js";
import { RunRecordLink } from "../../components/record_link.js";
import { Time } from "../../components/time.js";
import { link } from "../../router.js";

const APPROVALS = { resolved: ["good", "approved"], declined: ["bad", "denied"] };
const OUTCOMES = { resolved: ["good", "answered"], declined: ["", "declined"], timed_out: ["warn", "ran out of time"], cancelled: ["", "taken back"], delivered: ["info", "notice"] };

/** @param {{question: any}} properties */
export function ClosedQuestion({ question }) {
  const [tone, words] = (question.kind === "approval" ? APPROVALS[question.status] : null) ?? OUTCOMES[question.status] ?? ["", question.status ?? ""];
  return html`<article class="card question closed" aria-label=${`${words}: question of ${question.agent ?? "a run"}`}>
    <header>
      <${Chip} tone=${tone}>${words}<//>
      <h2><a href=${link(`/runs/${question.run_id}`)}><bdi>${question.agent ?? "a run"}</bdi></a></h2>
      <${Id} id=${question.run_id} short=${8} />
      <span class="dim"><${Time} at=${question.resolved_at ?? question.created_at} relative /></span>
      <span class="grow"></span>
      <${RunRecordLink} run=${question.run_id} seq=${question.seq} label=${question.kind === "notice" ? "record" : "record of the question"} />
      ${question.kind === "notice" ? null : html`<${RunRecordLink} run=${question.run_id} type="InterruptionClosed" text=${question.interrupt_id} label="of its end" />`}
    </header>
    <div class="inside">
      <p><${LongText} text=${question.question ?? ""} max=${800} /></p>
      ${question.context ? html`<p class="dim"><${LongText} text=${question.context} max=${300} /></p>` : null}
      ${question.answer ? html`<p class="answer"><strong><${LongText} text=${question.answer} max=${800} /></strong>${question.resolved_by ? html` <span class="dim">by <bdi>${question.resolved_by}</bdi></span>` : null}</p>` : question.resolved_by ? html`<p class="dim">by <bdi>${question.resolved_by}</bdi></p>` : null}
    </div>
  </article>`;
}
