// The rules of the pages of webhooks, without a page.
import assert from "node:assert/strict";
import test from "node:test";
import { addressOf, addressPath, curlOf, detailOf, mappingRows, parseHeaders, partsOf, proofHeaders, proofOf, verdictOf } from "../../services/web/pages/webhooks/model.js";

test("the address has the tenant only for a webhook of a tenant", () => {
  assert.equal(addressOf({ source: "file", tenant_id: "default", name: "issues" }), "issues");
  assert.equal(addressOf({ source: "shared", tenant_id: "", name: "issues" }), "issues");
  assert.equal(addressOf({ source: "tenant", tenant_id: "acme", name: "is sues" }), "acme/is sues");
  assert.equal(addressPath("acme/is sues"), "/v1/_webhooks/acme/is%20sues");
  assert.deepEqual(partsOf("acme/issues"), { tenant: "acme", name: "issues" });
  assert.deepEqual(partsOf("issues"), { tenant: "", name: "issues" });
});

test("verdicts have words, also those of a newer server", () => {
  assert.deepEqual(verdictOf("accepted").slice(0, 2), ["good", "accepted"]);
  assert.deepEqual(verdictOf("rejected_no_runner"), ["bad", "no runner", ""]);
});

test("the proof of each kind is made as the server checks it", async () => {
  const at = 1_795_667_000_500;
  // printf %s "$BODY" | openssl dgst -sha256 -hmac s3cret
  const signed = proofOf({ kind: "hmac", signing_secret_env: "S", header: "X-Hub-Signature-256" });
  assert.deepEqual(await proofHeaders(signed, "s3cret", "körper", at), { "X-Hub-Signature-256": "sha256=40a786b05e406d83c3c60faffdd213c5cdabe47c15982c45b4d661b6f19a5409" });
  const stripe = proofOf({ kind: "hmac", header: "Stripe-Signature" });
  assert.deepEqual(await proofHeaders(stripe, "s3cret", "b", at), { "Stripe-Signature": "t=1795667000,v1=b0c5106ded6bf0ff5a9226e3d36791a1e0cd73553d83601900d876a2ef8f3616" });
  const token = proofOf({ kind: "bearer", header: "X-Token", bearer_token_env: "T" });
  assert.deepEqual(await proofHeaders(token, "s3cret", "b", at), { "X-Token": "s3cret" });
  assert.equal(proofOf(undefined).kind, "none");
});

test("a command for the sender carries the proof, and no secret", () => {
  assert.match(curlOf("http://h/v1/_webhooks/x", proofOf({ kind: "hmac" })), /X-Loomlog-Signature: sha256=\$SIG/);
  assert.match(curlOf("http://h/x", proofOf({ kind: "hmac", header: "Stripe-Signature" })), /t=\$T,v1=\$SIG/);
  assert.match(curlOf("http://h/x", proofOf({ kind: "bearer" })), /Authorization: Bearer \$TOKEN/);
  assert.doesNotMatch(curlOf("http://h/x", proofOf({ kind: "none" })), /TOKEN|SIG/);
});

test("without a goal the body is the goal", () => {
  assert.deepEqual(mappingRows({}), [{ target: "goal", from: "$", isPath: true }]);
  assert.deepEqual(mappingRows({ payload_mapping: { goal: "$.a", user_id: "bot" } }), [
    { target: "goal", from: "$.a", isPath: true },
    { target: "user_id", from: "bot", isPath: false },
  ]);
});

test("headers are lines, and those that a browser keeps for itself are refused by name", () => {
  assert.deepEqual(parseHeaders(" X-A: 1:2 \n\nx-b:"), { headers: { "x-a": "1:2", "x-b": "" }, problem: "" });
  assert.match(parseHeaders("no header").problem, /expected Name: value/);
  assert.match(parseHeaders("Authorization: Bearer x").problem, /cannot send Authorization/);
  assert.match(parseHeaders("Sec-Fetch-Site: none").problem, /cannot send/);
  assert.match(parseHeaders("X-A: \u202e").problem, /cannot have/);
});

test("the detail of a delivery has its metadata as plain text", () => {
  assert.equal(detailOf({ replay_of: "d-1", by: "ann", run_metadata: { repo: '"acme/shop"', count: "3" } }), "replay of d-1 · by ann · repo: acme/shop · count: 3");
  assert.equal(detailOf({ detail: "the limit is reached" }), "the limit is reached");
});
