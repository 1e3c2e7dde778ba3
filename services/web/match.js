// Which pattern a path fits. No part of the page is needed here.

/**
 * The parameters of a path that fits a pattern, or null. `:name` takes one segment, `*name` the rest.
 * @param {string} pattern @param {string} path @returns {Record<string, string> | null}
 */
export function match(pattern, path) {
  const wanted = pattern.split("/").filter(Boolean);
  const given = path.split("/").filter(Boolean);
  /** @type {Record<string, string>} */
  const params = {};
  for (let at = 0; at < wanted.length; at += 1) {
    if (wanted[at].startsWith("*")) {
      params[wanted[at].slice(1)] = given.slice(at).map(decoded).join("/");
      return params;
    }
    if (given[at] === undefined) return null;
    if (wanted[at].startsWith(":")) params[wanted[at].slice(1)] = decoded(given[at]);
    else if (wanted[at] !== given[at]) return null;
  }
  return wanted.length === given.length ? params : null;
}

/** A segment as it was before it was escaped; one that is escaped wrongly stays as it is. @param {string} segment */
function decoded(segment) {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment;
  }
}
