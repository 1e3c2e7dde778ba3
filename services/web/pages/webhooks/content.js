// Contents of versions, which never change: each is read once for all that show it.
import { signal, useEffect } from "../../ui.js";
import { library } from "../../api.js";

/** By the id of a version: its definition, undefined while it is read, null when it cannot be. @type {Map<string, import("@preact/signals").Signal<any>>} */
const known = new Map();
const asked = new Set();
const NONE = signal(null);

function contentOf(id) {
  if (!known.has(id)) known.set(id, signal(undefined));
  return /** @type {import("@preact/signals").Signal<any>} */ (known.get(id));
}

/**
 * The definition of a version; undefined while it is read, null when there is none.
 * @param {string} id empty: there is none @param {string} tenant
 */
export function useContent(id, tenant) {
  useEffect(() => {
    if (!id || asked.has(id)) return;
    asked.add(id);
    library.version(id, { tenant }).then(
      (version) => (contentOf(id).value = version.definition),
      () => (asked.delete(id), (contentOf(id).value = null)),
    );
  }, [id]);
  return (id ? contentOf(id) : NONE).value;
}

/** What is in force under a name: the active version, else that of the file. @param {any} row */
export const activeId = (row) => row.active_def_id ?? row.static_def_id ?? "";
