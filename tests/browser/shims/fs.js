// Stands for node:fs in a browser: files beside the tests, read at once as there.

/** @param {URL | string} path */
export function readFileSync(path) {
  const request = new XMLHttpRequest();
  request.open("GET", String(path), false);
  request.send();
  if (request.status !== 200) throw new Error(`${path} cannot be read: ${request.status}`);
  return request.responseText;
}

export default { readFileSync };
