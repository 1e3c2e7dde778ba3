// Schedules: their list, and one with the times ahead and what it has fired.
import { html } from "../ui.js";
import { ScheduleList } from "./schedules/list.js";
import { SchedulePage } from "./schedules/schedule.js";

/** @param {{params: {id?: string}}} properties id: the name of a schedule, or the id of its active version */
export default function Schedules({ params }) {
  return params.id ? html`<${SchedulePage} key=${params.id} id=${params.id} />` : html`<${ScheduleList} />`;
}
