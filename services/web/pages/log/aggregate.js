// Goes from the id of an aggregate to its records in the log.
import { html, useEffect } from "../../ui.js";
import { ApiError, log, operations } from "../../api.js";
import { ErrorState, Loading } from "../../components/states.js";
import { useResource } from "../../resource.js";
import { here, navigate } from "../../router.js";
import { parsePosition } from "./model.js";

/** @param {{id: string}} properties `<family>:<tenant>/<name>` */
export function AggregateJump({ id }) {
  const { query } = here.value;
  const from = query.get("from") ?? "";
  const type = query.get("type") ?? "";
  const target = useResource((signal) => read(id, from, type, signal), [id, from, type]);
  useEffect(() => void (target.data && navigate(target.data, { replace: true })), [target.data]);
  if (target.error) return html`<${ErrorState} isPage error=${target.error} onRetry=${target.reload} />`;
  return html`<${Loading} label="Looking for the records" />`;
}

/** The address of its records: with a time, that of the first one from then on. */
async function read(id, from, type, signal) {
  const place = parsePosition((await operations.aggregate(id, { signal })).position);
  if (!place) throw new ApiError(404, "not_found", `${id} has no record in the log.`);
  const query = new URLSearchParams({ run_id: id });
  if (from) {
    const page = await log.records(place.topic, place.partition, { from, type, run_id: id, limit: 1 }, { signal });
    if (page.records.length) query.set("from", String(page.records[0].offset));
  }
  if (type && !query.has("from")) query.set("type", type);
  return `/log/${place.topic}/${place.partition}?${query}`;
}
