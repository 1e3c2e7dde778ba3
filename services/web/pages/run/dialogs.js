// What can be done with a run besides steering it: fork, compare, export, replay, and who made its definition.
import { html, useEffect, useRef, useState } from "../../ui.js";
import { runs, seg } from "../../api.js";
import { Button, Chip, CopyButton, Field, Id } from "../../components/controls.js";
import { Dialog } from "../../components/dialog.js";
import { Icon } from "../../components/icon.js";
import { useKeys } from "../../components/keys.js";
import { RecordLink } from "../../components/record_link.js";
import { Resource } from "../../components/states.js";
import { RunStatus } from "../../components/status.js";
import { Time, formatCount } from "../../components/time.js";
import { useResource } from "../../resource.js";
import { link, navigate } from "../../router.js";
import { may } from "../../session.js";
import { ForkDialog } from "./fork_dialog.js";

const RECENT = 8;

/** The row of buttons in the head of a run. @param {{history: import("./history.js").History}} properties */
export function RunActions({ history }) {
  const [open, setOpen] = useState("");
  const { run } = history;
  const close = () => setOpen("");
  const canFork = may("runs:create");
  useKeys("Run: actions", {
    ...(canFork ? { f: ["Fork here", () => setOpen("fork")] } : {}),
    c: ["Compare with another run", () => setOpen("compare")],
  });
  return html`
    ${canFork ? html`<${Button} small icon="git-fork" title=${history.at === null ? "Start a run that shares the events up to a moment" : `Start a run that shares the events 1 to ${history.at}`} onClick=${() => setOpen("fork")}>Fork${history.at === null ? "" : ` at ${history.at}`}<//>` : null}
    <${Button} small icon="git-compare" title="Compare with another run" onClick=${() => setOpen("compare")}>Compare<//>
    <${Menu} label="More actions" entries=${[
      { icon: "rotate-ccw", title: "Replay and compare", onClick: () => setOpen("replay") },
      { icon: "users", title: "Who made its definition", onClick: () => setOpen("blame") },
      { icon: "download", title: "Export as a file", href: runs.exportPath(run.run_id) },
    ]} />
    ${open === "fork" ? html`<${ForkDialog} history=${history} onClose=${close} />` : null}
    ${open === "compare" ? html`<${CompareDialog} run=${run} onClose=${close} />` : null}
    ${open === "replay" ? html`<${ReplayDialog} run=${run} onClose=${close} />` : null}
    ${open === "blame" ? html`<${BlameDialog} run=${run} onClose=${close} />` : null}
  `;
}

/** A button with a list of actions below it. Arrow keys move, Escape closes. */
function Menu({ label, entries }) {
  const [isOpen, setOpen] = useState(false);
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  const button = () => box.current?.querySelector("button");
  useEffect(() => {
    if (!isOpen) return undefined;
    /** @type {HTMLElement | null | undefined} */ (box.current?.querySelector("[role=menuitem]"))?.focus();
    const outside = (event) => !box.current?.contains(event.target) && setOpen(false);
    addEventListener("pointerdown", outside);
    return () => removeEventListener("pointerdown", outside);
  }, [isOpen]);
  const keys = (event) => {
    if (!isOpen) return;
    const items = [.../** @type {HTMLElement} */ (box.current).querySelectorAll("[role=menuitem]")];
    const at = items.indexOf(/** @type {Element} */ (document.activeElement));
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: items.length - 1 }[event.key];
    if (to !== undefined) /** @type {HTMLElement} */ (items[(to + items.length) % items.length]).focus();
    else if (event.key === "Escape") (setOpen(false), button()?.focus());
    else if (event.key === "Tab") return setOpen(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };
  return html`<span class="menu" ref=${box} onKeyDown=${keys}>
    <button type="button" class="button small" aria-haspopup="menu" aria-expanded=${isOpen} onClick=${() => setOpen(!isOpen)}><span>More</span><${Icon} name="chevron-down" size=${14} /></button>
    ${isOpen
      ? html`<span class="menu-list" role="menu" aria-label=${label}>${entries.map((entry) =>
          entry.href
            ? html`<a role="menuitem" tabindex="-1" href=${entry.href} download key=${entry.title} onClick=${() => setOpen(false)}><${Icon} name=${entry.icon} />${entry.title}</a>`
            : html`<button type="button" role="menuitem" tabindex="-1" key=${entry.title} onClick=${() => (setOpen(false), button()?.focus(), entry.onClick())}><${Icon} name=${entry.icon} />${entry.title}</button>`,
        )}</span>`
      : null}
  </span>`;
}

/** Chooses the other run: its origin, one of its forks, a run of its session or agent, or any by its id. @param {{run: Api.Run, onClose: any}} properties */
function CompareDialog({ run, onClose }) {
  const [id, setId] = useState("");
  const near = useResource(
    async (signal) => {
      const list = (query) => runs.list({ ...query, limit: RECENT }, { signal }).then((answer) => answer.runs);
      const none = () => [];
      const [forks, session, agent, origin] = await Promise.all([
        list({ forked_from: run.run_id }).catch(none),
        list({ session_id: run.session_id }).catch(none),
        list({ agent: run.agent }).catch(none),
        run.forked_from ? runs.one(run.forked_from.run_id, { signal }).then((one) => [one]).catch(none) : [],
      ]);
      const seen = new Set([run.run_id]);
      return /** @type {[string, Api.Run[]][]} */ ([["its origin", origin], ["a fork of it", forks], ["same session", session], [`also ${run.agent}`, agent]]).flatMap(([why, found]) => found.filter((one) => !seen.has(one.run_id) && seen.add(one.run_id)).map((one) => ({ why, run: one })));
    },
    [run.run_id],
  );
  const go = (other) => (onClose(), navigate(`/runs/${seg(run.run_id)}/compare/${seg(other)}`));
  return html`<${Dialog} title="Compare with another run" onClose=${onClose} wide actions=${html`<${Button} onClick=${onClose}>Close<//><${Button} kind="primary" isDisabled=${!id.trim()} onClick=${() => go(id.trim())}>Compare<//>`}>
    <form onSubmit=${(event) => (event.preventDefault(), id.trim() && go(id.trim()))}><${Field} label="Id of the other run" value=${id} onInput=${setId} autofocus code placeholder="r_..." /></form>
    <${Resource} of=${near} rows=${4}>${(rows) => (rows.length ? html`<ul class="choices">${rows.map(({ why, run: one }) => html`<li key=${one.run_id}><button type="button" onClick=${() => go(one.run_id)}><b><bdi>${one.agent}</bdi></b> <code class="dim">…${one.run_id.slice(-10)}</code> <${RunStatus} run=${one} /><span class="grow"></span><span class="dim">${why}, </span><${Time} at=${one.started_at} relative /></button></li>`)}</ul>` : html`<p class="dim">No other run of this session or agent.</p>`)}<//>
  <//>`;
}

/** Folds the run again from the log, without calls, and says whether it is what the read models show. @param {{run: Api.Run, onClose: any}} properties */
function ReplayDialog({ run, onClose }) {
  const replay = useResource(() => runs.replay(run.run_id), [run.run_id]);
  const command = `loomlog replay ${run.run_id}`;
  return html`<${Dialog} title="Replay" onClose=${onClose} wide actions=${html`<${Button} icon="rotate-ccw" isBusy=${replay.isLoading} onClick=${replay.reload}>Replay again<//><${Button} kind="primary" onClick=${onClose}>Close<//>`}>
    <p class="dim">The run is folded again from its records in the log, without calls of models or tools, and compared with what is shown here.</p>
    <${Resource} of=${replay}>${(result) => html`
      ${result.drift.length
        ? html`<div class="note bad" role="status"><b>Not equal: ${formatCount(result.drift.length)} ${result.drift.length === 1 ? "difference" : "differences"}</b>${result.first_drift_seq ? html`, the first at <a href=${link(`/runs/${seg(run.run_id)}/events`, { seq: result.first_drift_seq })} onClick=${onClose}>record ${result.first_drift_seq}</a>` : null}<ul>${result.drift.map((one) => html`<li key=${one}><bdi>${one}</bdi></li>`)}</ul></div>`
        : result.compared
          ? html`<p class="note good" role="status"><b>Equal.</b> ${formatCount(result.seq)} records give exactly the state that the read models show.</p>`
          : html`<p class="note warn" role="status"><b>Folded without a fault, but not compared:</b> ${result.not_compared}</p>`}
      <dl class="facts">
        <dt>Records</dt><dd class="number">${formatCount(result.seq)}${result.stale ? `, and ${formatCount(result.stale)} of fenced owners that readers ignore` : ""}${result.continues ? `, after ${formatCount(result.continues)} earlier runs of its session` : ""}</dd>
        <dt>Place</dt><dd class="mono">partition ${result.partition}, offsets ${result.first_offset ?? "?"} to ${result.last_offset}</dd>
        <dt>Status</dt><dd>${result.status}</dd>
        <dt>State</dt><dd><${Id} id=${result.state_sha256} short=${16} /></dd>
        <dt>Hash chain</dt><dd><${Id} id=${result.tail_digest} short=${0} /></dd>
      </dl>
      <p class="command"><code>${command}</code><${CopyButton} text=${command} label="Copy the command" /></p>
    `}<//>
  <//>`;
}

/** Which version of the agent and of its skills the run was pinned to, who made it and why. @param {{run: Api.Run, onClose: any}} properties */
function BlameDialog({ run, onClose }) {
  const blame = useResource(() => runs.blame(run.run_id), [run.run_id]);
  const who = (one) => html`<bdi>${one.created_by || one.created_by_agent_id || "unknown"}</bdi>${one.created_by_run_id ? html` in <a href=${link(`/runs/${seg(one.created_by_run_id)}`)} onClick=${onClose}>a run</a>` : null}`;
  return html`<${Dialog} title="Who made its definition" onClose=${onClose} wide actions=${html`<${Button} kind="primary" onClick=${onClose}>Close<//>`}>
    <${Resource} of=${blame}>${(found) => html`
      <dl class="facts">
        <dt>Agent</dt><dd><b><bdi>${found.agent}</bdi></b> ${found.version ? html`version ${found.version}` : null} <${Chip} tone=${found.is_active_now ? "good" : "warn"}>${found.is_active_now ? "still the active one" : "another is active now"}<//></dd>
        <dt>From</dt><dd>${found.source === "file" ? "the configuration file" : found.source}</dd>
        ${found.def_id ? html`<dt>Version</dt><dd><${Id} id=${found.def_id} short=${0} href=${found.source === "file" ? undefined : link(`/library/version/${seg(found.def_id)}`)} /></dd>` : null}
        ${found.created_at ? html`<dt>Made</dt><dd><${Time} at=${found.created_at} /> by ${who(found)}</dd>` : null}
        ${found.description ? html`<dt>Why</dt><dd><bdi>${found.description}</bdi></dd>` : null}
        ${found.promoted_at ? html`<dt>Made active</dt><dd><${Time} at=${found.promoted_at} /> by <bdi>${found.promoted_by ?? "unknown"}</bdi>${found.promoted_why ? html`: <bdi>${found.promoted_why}</bdi>` : null}${found.promotion_position ? html` <${RecordLink} position=${found.promotion_position} />` : null}</dd>` : null}
        ${found.parent_def_id ? html`<dt>Made from</dt><dd><${Id} id=${found.parent_def_id} short=${0} href=${link(`/library/version/${seg(found.parent_def_id)}`)} /></dd>` : null}
        <dt>Pinned content</dt><dd><${Id} id=${found.definition_sha256} short=${16} /></dd>
        ${found.file?.differs_from_pin ? html`<dt>File now</dt><dd><${Chip} tone="warn">differs from what the run was pinned to<//></dd>` : null}
      </dl>
      ${found.skills?.length ? html`<h3>Skills that it used</h3><ul class="choices">${found.skills.map((one) => html`<li key=${one.name}><span><b><bdi>${one.name}</bdi></b> ${one.def_id ? html`<a href=${link(`/library/version/${seg(one.def_id)}`)} onClick=${onClose}>version ${one.version}</a>` : html`<span class="dim">from a file</span>`} <code class="dim">${one.content_sha256.slice(0, 12)}</code></span></li>`)}</ul>` : null}
    `}<//>
  <//>`;
}
