// The template of environment variables as rows. No part of the page is needed here.

/**
 * @typedef {{name: string, initial: string, what: string, group: string}} Setting
 * @param {string} template the text of GET /v1/_env_template @returns {Setting[]}
 */
export function settingsOf(template) {
  const settings = [];
  let group = "";
  let words = [];
  for (const line of template.split("\n")) {
    const [, heading] = /^# --- (.+?) -+$/.exec(line) ?? [];
    const [, name, initial] = /^(?:# ?)?([A-Z][A-Z0-9_]+)=(.*)$/.exec(line) ?? [];
    if (heading) [group, words] = [heading, []];
    else if (name) {
      settings.push({ name, initial, what: words.join(" "), group });
      words = [];
    } else if (line.startsWith("# ")) words.push(line.slice(2));
    else if (!line.trim()) words = [];
  }
  return settings;
}
