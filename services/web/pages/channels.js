// Channels: their list, and one channel with its messages, readers and queues.
import { html } from "../ui.js";
import { ChannelPage } from "./channels/channel.js";
import { ChannelList } from "./channels/list.js";

/** @param {{params: {rest?: string}}} properties rest: the name of a channel, which may have slashes */
export default function Channels({ params }) {
  return params.rest ? html`<${ChannelPage} key=${params.rest} name=${params.rest} />` : html`<${ChannelList} />`;
}
