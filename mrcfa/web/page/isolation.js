"use strict";
// A service worker that adds the two headers without which browsers give WebAssembly one thread. A host
// that sends them itself needs no such worker.
const HEADERS = {"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Embedder-Policy": "require-corp"};

self.onfetch = event => event.respondWith(isolated(event.request));

async function isolated(request) {
  const answer = await fetch(request), headers = new Headers(answer.headers);
  if (answer.type === "opaque") return answer;
  for (const [name, value] of Object.entries(HEADERS)) headers.set(name, value);
  return new Response(answer.body, {status: answer.status, statusText: answer.statusText, headers});
}
