// The graph of a team as a tree that can be drawn: each state hangs on the first state that leads to it. No part of the page is needed here.

/**
 * @param {{entry?: string, states?: any[] | null, transitions?: any[] | null}} team
 * @returns {{id: string, parent: string | null, title: string, sub: string, tone?: string, dashed: boolean}[]} states in the order in which they are reached; those that are not reached last
 */
export function teamNodes({ entry = "", states, transitions }) {
  const handlers = new Map((states ?? []).map((one) => [one.state, one.handler ?? {}]));
  const nodes = new Map();
  const add = (state, parent, on) => {
    if (nodes.has(state) || !handlers.has(state)) return;
    const handler = handlers.get(state);
    const agents = [handler.agent, ...(handler.agents ?? [])].filter(Boolean).join(", ");
    const back = (transitions ?? []).filter((one) => one.from === state && nodes.has(one.to)).map((one) => `back to ${one.to}`);
    nodes.set(state, {
      id: state,
      parent,
      title: state,
      sub: [agents || handler.kind || "", ...back].filter(Boolean).join(" · "),
      tone: handler.kind === "terminal" ? "good" : handler.kind === "parallel" ? "c2" : undefined,
      dashed: on !== "success" && on !== "",
    });
  };
  add(entry, null, "");
  // A Map is walked in the order of insertion, those that are added on the way included.
  for (const state of nodes.keys()) for (const one of transitions ?? []) if (one.from === state) add(one.to, state, one.on ?? "");
  for (const state of handlers.keys()) add(state, null, "");
  return [...nodes.values()];
}
