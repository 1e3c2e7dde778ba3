// The library: what agents, skills and every other kind of definition are, were and become.
import { html } from "../ui.js";
import { ApiError } from "../api.js";
import { Forbidden, ErrorState } from "../components/states.js";
import { may } from "../session.js";
import { DefinitionPage } from "./library/definition.js";
import { ApplyPage, EditorPage } from "./library/editor.js";
import { KINDS, kindNamed } from "./library/kinds.js";
import { PastPage } from "./library/past.js";
import { ShelfPage } from "./library/shelf.js";
import { VersionJump } from "./library/version.js";
import { VolumesPage } from "./library/volumes.js";

const WRITE = "substrate:tenant";

/** @param {{params: {rest?: string}}} properties rest: what follows /library/ in the address; names may have slashes */
export default function Library({ params }) {
  const [first = "", ...others] = (params.rest ?? "").split("/").filter(Boolean);
  const rest = others.join("/");
  const needs = (page) => (may(WRITE) ? page : html`<${Forbidden} isPage scope=${WRITE} />`);
  if (!first) return html`<${ShelfPage} kind=${KINDS[0]} />`;
  if (first === "at") return needs(html`<${PastPage} />`);
  if (first === "apply") return needs(html`<${ApplyPage} />`);
  if (first === "volumes") return html`<${VolumesPage} />`;
  if (first === "version") return needs(html`<${VersionJump} key=${rest} id=${rest} />`);
  if (first === "create" || first === "fork") {
    const kind = kindNamed(others[0] ?? "");
    const name = others.slice(1).join("/");
    if (kind && (first === "create" || name)) return needs(html`<${EditorPage} key=${params.rest} kind=${kind} name=${name} isFork=${first === "fork"} />`);
  }
  const kind = kindNamed(first);
  if (!kind) return html`<${ErrorState} isPage error=${new ApiError(404, "not_found", `There is no page /library/${params.rest}: a definition is at /library/<kind>/<name>, and the kinds are ${KINDS.map((one) => one.kind).join(", ")}.`)} />`;
  return rest ? html`<${DefinitionPage} key=${params.rest} kind=${kind} name=${rest} />` : html`<${ShelfPage} kind=${kind} />`;
}
