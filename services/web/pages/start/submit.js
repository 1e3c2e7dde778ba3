// Sends a start, or a fork. The run goes on when its stream is closed: the page only takes the ids from the first frames.
import { ApiError, request } from "../../api.js";
import { FrameDecoder } from "../../stream.js";

/**
 * @param {any} body @param {string} key the same for a repeated attempt, so that no second run starts
 * @param {string} [path] of the route that the body is for
 * @returns {Promise<{run_id: string, session_id: string, agent_id: string}>}
 */
export async function startRun(body, key, path = "/v1/runs") {
  const abort = new AbortController();
  try {
    const headers = { accept: "text/event-stream", "idempotency-key": key };
    const answer = await request("POST", path, { query: { ids: 1 }, body, headers, as: "response", signal: abort.signal });
    const reader = /** @type {ReadableStream<Uint8Array>} */ (answer.body).getReader();
    const decoder = new FrameDecoder();
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      for (const frame of decoder.push(value)) if (frame.event === "agent" && frame.data?.run_id) return frame.data;
    }
  } finally {
    abort.abort();
  }
  throw new ApiError(0, "unreachable", "The connection broke before the server had named the run. Start again: the same start makes no second run.");
}
