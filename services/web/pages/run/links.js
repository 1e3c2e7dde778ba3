// Addresses within the page of a run: the moment that is looked at stays.
import { here, link } from "../../router.js";

/** @param {string} runId @param {string} view such as "events" @param {Record<string, any>} [query] */
export const viewLink = (runId, view, query = {}) => link(`/runs/${encodeURIComponent(runId)}/${view}`, { ...query, at: here.value.query.get("at") });
