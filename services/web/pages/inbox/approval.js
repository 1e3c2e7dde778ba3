// A call that waits for approval: who asks, which call with which arguments, who has approved, and the decision.
import { html, useState } from "../../ui.js";
import { approvals } from "../../api.js";
import { parseJson } from "../../exact_json.js";
import { Button, Chip, Field, Id } from "../../components/controls.js";
import { Json, LongText } from "../../components/json.js";
import { RunRecordLink } from "../../components/record_link.js";
import { ErrorState, Resource } from "../../components/states.js";
import { Time, formatDuration, now } from "../../components/time.js";
import { toast } from "../../components/toast.js";
import { useAction, useResource } from "../../resource.js";
import { link } from "../../router.js";
import { me } from "../../session.js";
import { timeLeft } from "./questions.js";

/** Interval at which approvals of other people are looked for. */
const READ_EVERY_MS = 5_000;

/** @param {{question: any, isCurrent: boolean, onCurrent: () => void, onLeft: () => void}} properties */
export function Approval({ question, isCurrent, onCurrent, onLeft }) {
  const resource = useResource(() => approvals.show(question.run_id, question.interrupt_id), [question.run_id, question.interrupt_id], { everyMs: READ_EVERY_MS });
  const left = timeLeft({ expires_at: resource.data?.expires_at ?? question.expires_at }, now.value);
  return html`<article class=${`card question${isCurrent ? " current" : ""}`} data-question=${question.interrupt_id} onClick=${onCurrent} onFocusIn=${onCurrent} aria-label=${`Approval for ${question.agent ?? "a run"}`} aria-current=${isCurrent ? "true" : undefined}>
    <header>
      <${Chip} tone="warn" icon="shield-check">approval<//>
      <h2><a href=${link(`/runs/${question.run_id}`)}><bdi>${question.agent ?? "a run"}</bdi></a> asks to make a call</h2>
      <${Id} id=${question.run_id} short=${8} />
      ${question.user_id ? html`<span class="dim wide-only">for <bdi>${question.user_id}</bdi></span>` : null}
      <span class="dim"><${Time} at=${question.created_at} relative /></span>
      <${RunRecordLink} run=${question.run_id} seq=${question.seq} />
      ${left ? html`<${Chip} tone=${left.isSoon ? "warn" : ""} icon="timer" title="Then the next group is asked, or the call is denied">${left.hasExpired ? "over" : `${formatDuration(left.ms)} left`}<//>` : null}
    </header>
    <div class="inside fields"><${Resource} of=${resource}>${(approval) => html`<${Decision} approval=${approval} onLeft=${onLeft} onVoted=${resource.reload} />`}<//></div>
  </article>`;
}

/** @param {{approval: any, onLeft: () => void, onVoted: () => void}} properties */
function Decision({ approval, onLeft, onVoted }) {
  const [reason, setReason] = useState("");
  const action = useAction();
  const group = approval.groups[approval.group];
  const hasVoted = approval.votes.some((vote) => vote.by === me.value?.subject);
  const decide = async (act, words) => {
    const body = { reason, surface: "page", ...(act === "approve" ? { arguments_sha256: approval.arguments_sha256 } : {}) };
    const done = await action.run(() => approvals[act](approval.run_id, approval.approval_id, body));
    if (!done) return;
    toast(html`${done.status === "pending" ? "Approved; further people are needed." : words} <a href=${link(`/runs/${approval.run_id}`)}>Open the run</a>`);
    if (done.status === "pending") onVoted();
    else onLeft();
  };
  return html`
    <p><code><bdi>${approval.tool}</bdi></code> <span class="dim">by the rule <bdi>${approval.rule}</bdi> of the ${approval.source}</span></p>
    ${approval.reason ? html`<p><${LongText} text=${approval.reason} /></p>` : null}
    <div class="background soft"><${Arguments} text=${approval.arguments} /></div>
    <p class="dim">${approval.votes.length} of ${group?.approvals ?? 1} have approved${approval.votes.length ? html`: ${approval.votes.map((vote, at) => html`${at ? ", " : ""}<bdi>${vote.by}</bdi>${vote.reason ? html` (<${LongText} text=${vote.reason} max=${120} />)` : null}`)}` : null}</p>
    ${approval.status !== "pending"
      ? html`<p class="note">It is ${approval.status} already.</p>`
      : !approval.may_approve
        ? html`<p class="dim">The rule asks others: <bdi>${[...(group?.subjects ?? []), ...(group?.scopes ?? [])].join(", ")}</bdi></p>`
        : html`<${Field} label="Reason" value=${reason} onInput=${setReason} />
            <div class="actions">
              <${Button} kind="primary" icon="check" isBusy=${action.isBusy} isDisabled=${hasVoted} title=${hasVoted ? "You have approved it" : undefined} onClick=${() => decide("approve", "Approved: the call is made.")}>Approve<//>
              <${Button} kind="danger" icon="x" isBusy=${action.isBusy} onClick=${() => decide("deny", "Denied: the agent is told.")}>Deny<//>
            </div>`}
    ${action.error ? html`<${ErrorState} error=${action.error} compact />` : null}
  `;
}

/** Arguments as a value where they are JSON; otherwise as the text that they are. */
function Arguments({ text }) {
  try {
    return html`<${Json} value=${parseJson(text)} open=${3} label="Arguments" />`;
  } catch {
    return html`<${LongText} text=${text} max=${1_200} />`;
  }
}
