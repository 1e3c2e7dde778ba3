// Images of a start: read from files, shown small, removable.
import { html, useRef } from "../../ui.js";
import { Button } from "../../components/controls.js";
import { Icon } from "../../components/icon.js";
import { formatBytes } from "../../components/time.js";
import { IMAGE_TYPES } from "./request.js";

/** @param {{images: any[], onChange: (images: any[]) => void, onFiles: (files: Iterable<File>) => void, problem?: string}} properties */
export function Images({ images, onChange, onFiles, problem }) {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  return html`<div class="images">
    ${images.map((image, at) => html`<span class="chip removable" key=${at}><img src=${`data:${image.media_type};base64,${image.data}`} alt="" /><span><bdi>${image.name}</bdi> <small>${formatBytes(image.bytes)}</small></span><button type="button" aria-label=${`Remove ${image.name}`} onClick=${() => onChange(images.filter((_, other) => other !== at))}><${Icon} name="x" size=${12} /></button></span>`)}
    <${Button} small kind="quiet" icon="upload" onClick=${() => input.current?.click()}>Add images<//>
    <span class="dim wide-only">or drop or paste them here</span>
    <input ref=${input} type="file" hidden multiple accept=${IMAGE_TYPES.join(",")} aria-label="Images" onChange=${(event) => (onFiles([...event.currentTarget.files]), (event.currentTarget.value = ""))} />
    ${problem ? html`<p class="problem" role="alert">${problem}</p>` : null}
  </div>`;
}

/**
 * @param {Iterable<File>} files
 * @returns {Promise<{images: {name: string, media_type: string, data: string, bytes: number}[], refused: string}>} refused: what is said about files that are no images
 */
export async function readImages(files) {
  const all = [...files];
  const good = all.filter((file) => IMAGE_TYPES.includes(file.type));
  const images = await Promise.all(good.map(async (file) => ({ name: file.name || "image", media_type: file.type, data: await base64Of(file), bytes: file.size })));
  return { images, refused: good.length < all.length ? "Only PNG, JPEG, GIF and WebP images can be sent." : "" };
}

/** @param {Blob} file @returns {Promise<string>} */
function base64Of(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result).split(",", 2)[1] ?? "");
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}
