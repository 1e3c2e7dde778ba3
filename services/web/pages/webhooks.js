// Webhooks: their list, and one with its address, its deliveries and a dry run.
import { html } from "../ui.js";
import { WebhookList } from "./webhooks/list.js";
import { WebhookPage } from "./webhooks/webhook.js";

/** @param {{params: {rest?: string}}} properties rest: [tenant/]name, as in the address that a sender has */
export default function Webhooks({ params }) {
  return params.rest ? html`<${WebhookPage} key=${params.rest} address=${params.rest} />` : html`<${WebhookList} />`;
}
