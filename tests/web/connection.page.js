// The connection and its streams. In the browser alone, by tests/browser/test_modules.py: these modules need the import map.
import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, awayOf, connection } from "../../services/web/api.js";
import { FrameDecoder, follow } from "../../services/web/stream.js";

test("what a proxy answers for a server that it does not reach counts as away", () => {
  for (const status of [502, 503, 504]) assert.equal(awayOf(status, null), "away");
  assert.equal(awayOf(503, { code: "starting" }), "starting");
  assert.equal(awayOf(503, { ready: false, missing: ["log"] }), "starting");
  assert.equal(awayOf(503, { code: "projection_unavailable" }), "");
  for (const status of [200, 404, 429, 500]) assert.equal(awayOf(status, null), "");
});

/** Answers fetch with a list, then never. @param {(() => Response)[]} answers */
function answering(answers) {
  const before = globalThis.fetch;
  let asked = 0;
  globalThis.fetch = async () => {
    asked += 1;
    return (answers.shift() ?? (() => new Promise(() => {})))();
  };
  return { asked: () => asked, stop: () => (globalThis.fetch = before) };
}

const body = (text) => new Response(text, { status: 200 });

/** A stream after its first answer failed so. @param {() => Response} failure */
async function resumed(failure) {
  const server = answering([failure, () => body('id: 1\nevent: e\ndata: {}\n\n')]);
  const states = /** @type {string[]} */ ([]);
  const seen = new Promise((done) => {
    const stream = follow("/v1/x", {
      onFrames: () => (stream.stop(), done(true)),
      onState: (state, error) => {
        states.push(state);
        // The page finds out that the server is back: the stream waits no longer.
        if (state === "waiting") {
          connection.value = "away";
          setTimeout(() => (connection.value = "ok"));
        }
        if (state === "ended") done(error instanceof ApiError ? error.status : false);
      },
    });
  });
  const result = await seen;
  server.stop();
  return { result, states, asked: server.asked() };
}

test("a stream that a proxy or a server that has just begun refuses goes on, at once when the server is back", async () => {
  for (const status of [404, 502, 503, 504]) {
    const began = Date.now();
    const { result, states, asked } = await resumed(() => new Response("gone", { status }));
    assert.equal(result, true, String(status));
    assert.deepEqual([states.slice(0, 2), asked], [["connecting", "waiting"], 2]);
    assert.ok(Date.now() - began < 400, "it waited although the server was back");
  }
});

test("a refusal ends a stream", async () => {
  assert.equal((await resumed(() => new Response("{}", { status: 403 }))).result, 403);
});

test("frames of a stream keep them too", () => {
  const [frame] = new FrameDecoder().push(new TextEncoder().encode('event: e\ndata: {"n": 9007199254740993}\n\n'));
  assert.equal(frame.data.n, 9007199254740993n);
});
