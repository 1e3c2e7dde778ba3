// The versions of one name as they follow from each other, for the drawing and the list. No part of the page is needed here.

/**
 * @typedef {{def_id: string, version: number, parent_def_id: string, retired: boolean, created_at?: string, created_by_agent_id?: string,
 *   description?: string, bootstrapped_from_static?: boolean, expires_at?: string, isShared?: boolean, isFile?: boolean}} Version
 */

/** Most versions of a drawing: the newest, and what leads to them. */
export const DRAWN_MAX = 300;

/**
 * One list of what several answers say: the tenant's own versions, those of lineages that lead out of it, and the file's.
 * @param {Version[]} own newest first
 * @param {{root: Version, ancestors: Version[], descendants: Version[]}[]} lineages
 * @param {string | null} fileId def_id of the definition of a file
 * @returns {Version[]} newest first; the file last
 */
export function allVersions(own, lineages, fileId) {
  const known = new Map(own.map((version) => [version.def_id, version]));
  for (const { root, ancestors, descendants } of lineages) {
    for (const version of [root, ...ancestors, ...descendants]) {
      if (version.def_id && !known.has(version.def_id) && version.def_id !== fileId) known.set(version.def_id, { ...version, isShared: true });
    }
  }
  const sorted = [...known.values()].sort((a, b) => Number(a.isShared ?? false) - Number(b.isShared ?? false) || b.version - a.version);
  if (fileId) sorted.push({ def_id: fileId, version: 0, parent_def_id: "", retired: false, isFile: true });
  return sorted;
}

/** The ids that versions were made from and that are not among them. @param {Version[]} versions @param {string | null} active */
export function missingIds(versions, active) {
  const known = new Set(versions.map((version) => version.def_id));
  const wanted = [active ?? "", ...versions.map((version) => version.parent_def_id)];
  return [...new Set(wanted)].filter((id) => id && !known.has(id));
}

/** "version 3", "file" or "shared version 3". @param {Version} version */
export const versionTitle = (version) => (version.isFile ? "file" : `${version.isShared ? "shared " : ""}version ${version.version}`);

/** What a version is now, and its colour. @param {Version} version @param {string | null} active @returns {{word: string, tone: string}} */
export function versionState(version, active) {
  if (version.def_id === active) return { word: "active", tone: "good" };
  if (version.retired) return { word: "retired", tone: "bad" };
  return { word: "", tone: "" };
}

/**
 * The nodes of the drawing. A version copied from the file hangs on the file, with a dashed edge.
 * @param {Version[]} versions as allVersions gives them
 * @param {string | null} active def_id of what the name means now
 * @param {(version: Version) => string} href
 * @param {(version: Version) => string} when a short text about when and by whom
 */
export function lineageNodes(versions, active, href, when) {
  const drawn = withAncestors(versions, DRAWN_MAX);
  const file = drawn.find((version) => version.isFile);
  return drawn
    .sort((a, b) => a.version - b.version)
    .map((version) => {
      const { word, tone } = versionState(version, active);
      const isCopy = !version.parent_def_id && version.bootstrapped_from_static === true && file !== undefined;
      return {
        id: version.def_id,
        parent: isCopy ? file.def_id : version.parent_def_id || null,
        title: versionTitle(version) + (word ? ` · ${word}` : ""),
        sub: version.isFile ? "of a configuration file" : when(version),
        tone: tone || (version.isFile ? "info" : version.isShared ? "c4" : undefined),
        href: href(version),
        dashed: isCopy,
      };
    });
}

function withAncestors(versions, most) {
  if (versions.length <= most) return [...versions];
  const byId = new Map(versions.map((version) => [version.def_id, version]));
  const kept = new Map();
  for (const version of versions.filter((one) => !one.isFile)) {
    /** @type {Version | undefined} */
    let one = version;
    while (one && !kept.has(one.def_id)) {
      kept.set(one.def_id, one);
      one = byId.get(one.parent_def_id);
    }
    if (kept.size >= most) break;
  }
  const file = versions.find((one) => one.isFile);
  if (file) kept.set(file.def_id, file);
  return [...kept.values()];
}
