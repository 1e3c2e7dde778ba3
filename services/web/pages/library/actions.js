// What may be done with a version and with its name. Each asks first; the reason goes into the log.
import { html, useState } from "../../ui.js";
import { library } from "../../api.js";
import { Button } from "../../components/controls.js";
import { Confirm } from "../../components/dialog.js";
import { toast } from "../../components/toast.js";
import { link } from "../../router.js";
import { me } from "../../session.js";

/** The tenant whose line a version is in, for `tenant` of an operation: "" is the caller's own. @param {any} version @param {string} tenant */
function ownerOf(version, tenant) {
  if (version.tenant_id === "" && me.value?.tenant_id) return "_shared";
  return tenant;
}

/** Path of the editor for a version that is made from another one. */
export const forkPath = (kind, name, id, tenant) => link(`/library/fork/${kind.kind}/${name.split("/").map(encodeURIComponent).join("/")}`, { from: id, tenant });

/**
 * @param {{kind: import("./kinds.js").Kind, version: any, active: string | null, tenant: string, isShared: boolean, onDone: () => void}} properties
 *   version: as GET /v1/_definitions/{def_id} says it; isShared: it is of all tenants, and only an administrator changes it
 */
export function VersionActions({ kind, version, active, tenant, isShared, onDone }) {
  const [asked, setAsked] = useState("");
  const isFile = version.version === 0;
  const isActive = version.def_id === active;
  const mayChange = !isFile && (!isShared || me.value?.is_admin);
  const owner = ownerOf(version, tenant);
  const title = `version ${version.version} of ${version.name}`;
  const operate = async (body, said) => {
    await library.operate(kind.kind, body, { tenant: owner });
    toast(said);
    onDone();
  };
  // Refused if somebody else has made another version active since this page was read; not known for a name whose file is active.
  const expected = active && !isShared ? { expect_active: active } : {};
  const close = () => setAsked("");
  return html`<div class="actions">
    <${Button} small icon="git-fork" href=${forkPath(kind, version.name, isFile ? "" : version.def_id, tenant)} title=${isFile ? "Makes a version that begins with what the file says" : "Makes a version that begins with this one"}>Edit as new version<//>
    ${mayChange && !isActive && !version.retired ? html`<${Button} small icon="rocket" onClick=${() => setAsked("promote")}>Make active<//>` : null}
    ${mayChange && !version.retired ? html`<${Button} small kind="danger" icon="archive" onClick=${() => setAsked("retire")}>Retire<//>` : null}
    ${mayChange && version.retired ? html`<${Button} small icon="rotate-ccw" onClick=${() => setAsked("restore")}>Restore<//>` : null}
    ${asked === "promote"
      ? html`<${Confirm} title=${`Make ${title} active?`} confirm="Make active" takesReason onClose=${close} onConfirm=${(why) => operate({ op: "promote", def_id: version.def_id, why, ...expected }, `Version ${version.version} is active.`)}>
          <p>Runs that begin from now on use it. Runs that have begun keep their version.</p>
        <//>`
      : null}
    ${asked === "retire"
      ? html`<${Confirm} title=${`Retire ${title}?`} confirm="Retire" danger takesReason onClose=${close} onConfirm=${(why) => operate({ op: "retire", def_id: version.def_id, retired: true, why }, `Version ${version.version} is retired.`)}>
          <p>${isActive ? "It is the active version: afterwards none is active, and the name means what a file or the shared definitions say, or nothing." : "It can then not be made active until it is restored."} Runs that have begun keep it.</p>
        <//>`
      : null}
    ${asked === "restore"
      ? html`<${Confirm} title=${`Restore ${title}?`} confirm="Restore" takesReason onClose=${close} onConfirm=${(why) => operate({ op: "retire", def_id: version.def_id, retired: false, why }, `Version ${version.version} is restored.`)}>
          <p>It may be made active again. That is a step of its own.</p>
        <//>`
      : null}
  </div>`;
}

/** @param {{kind: import("./kinds.js").Kind, name: string, entry: any, tenant: string, onDone: () => void, onDeleted: () => void}} properties */
export function NameActions({ kind, name, entry, tenant, onDone, onDeleted }) {
  const [asked, setAsked] = useState("");
  const isOwn = entry.version_count > 0 && (entry.tenant_id !== "" || tenant === "_shared" || !me.value?.tenant_id);
  const close = () => setAsked("");
  const rollBack = async (why) => {
    const answer = /** @type {Api.DefinitionRolledBack} */ (await library.operate(kind.kind, { op: "rollback", name, why, ...(entry.active_def_id && entry.source === "tenant" ? { expect_active: entry.active_def_id } : {}) }, { tenant }));
    toast(`Version ${answer.version} is active again.`);
    onDone();
  };
  const remove = async (why) => {
    await library.operate(kind.kind, { op: "delete", name, why }, { tenant });
    toast(`${name} is deleted.`);
    onDeleted();
  };
  return html`
    ${isOwn && entry.version_count > 1 ? html`<${Button} icon="undo-2" onClick=${() => setAsked("rollback")} title="Makes the version active that was active before">Roll back<//>` : null}
    ${isOwn && kind.canDelete ? html`<${Button} kind="danger" icon="trash-2" onClick=${() => setAsked("delete")}>Delete<//>` : null}
    ${asked === "rollback"
      ? html`<${Confirm} title=${`Roll ${name} back?`} confirm="Roll back" takesReason onClose=${close} onConfirm=${rollBack}><p>The version that was active before becomes active again. The one that is active now stays in the list.</p><//>`
      : null}
    ${asked === "delete"
      ? html`<${Confirm} title=${`Delete ${name}?`} confirm="Delete" danger typed=${name} takesReason onClose=${close} onConfirm=${remove}><p>All its versions are taken out of the library. Their records stay in the log.</p><//>`
      : null}
  `;
}
