"use strict";
// Gives the newest frame of a video to a worker and draws it with its mask. A recording plays slower where
// the machine is slow, so that a frame's references are about as far back in time as in training.
const WIDEST = 1280, TRAINED_RATE = 15, SLOWEST = 1 / 16, RECENT_MS = 4000, MOST_THREADS = 4, STEPS = 1000, INFO_MS = 10_000;
const CAMERA = {video: {width: {ideal: 1280}, facingMode: {ideal: "environment"}}, audio: false};
const video = at("video"), INVITATION = at("invitation").textContent;
const view = {
  figure: document.querySelector("figure"), canvas: at("picture"), pen: at("picture").getContext("2d"),
  tint: document.createElement("canvas"), picture: null, mask: null,
};
let manifest, plan, worker = null, ready = false, losses = 0;  // the worker has one frame at a time
let source = null, busy = false, fresh = false, restart = true, begun = 0, frames = 0, recent = [];
let held = false, hiddenWhilePlaying = false;  // a recording is held until the first mask

async function open() {
  const fault = unfit();
  if (fault) return stop(fault);
  try {
    manifest = await (await fetched("bundle/manifest.json")).json();
  } catch (error) {
    return stop(`The manifest cannot be loaded (${error.message}); copy the site to its host again.`);
  }
  plan = await choosePlan(new URLSearchParams(location.search).get("provider"));
  if (plan.provider === "wasm" && await isReloading()) return;
  greeting = {classes: manifest.classes, palette: manifest.palette, shown: manifest.classes.map((_, index) => index)};
  screens = [view];
  showClasses();
  recolour();
  at("about").append(` · ${manifest.classes.length} classes · ${manifest.frame.join("×")}`);
  showPlan();
  show("", "ready");
  for (const button of at("sources").children) button.disabled = false;
}

function unfit() {
  if (location.protocol === "file:")
    return "Browsers load no models into a page that is opened as a file. Serve the folder of this page: run "
      + "“python3 -m http.server 8000” in it and open http://localhost:8000/.";
  if (!window.WebAssembly || !window.OffscreenCanvas || !window.createImageBitmap)
    return "This browser is too old: the page needs WebAssembly and OffscreenCanvas, which all browsers have since 2023.";
  return "";
}

async function fetched(path) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${answer.status} ${answer.statusText}`);
  return answer;
}

// The provider, the variant that it runs, and the reasons why it is not a faster one.
async function choosePlan(wanted) {
  const gpu = wanted === "wasm" ? {} : await gpuPlan(wanted === "webgpu");
  return gpu.variant ? gpu : {...wasmPlan(), reasons: gpu.refusal ? [gpu.refusal] : []};
}

function wasmPlan() {
  const variant = variantFor("cpu", "fp32") ?? variantFor("gpu", "fp32");
  return {provider: "wasm", variant, threads: window.crossOriginIsolated ? Math.min(cores(), MOST_THREADS) : 1, reasons: []};
}

async function gpuPlan(insists) {
  if (!window.isSecureContext)
    return {refusal: "This address is neither https nor localhost, so the browser offers no WebGPU, no camera and one thread."};
  const adapter = await navigator.gpu?.requestAdapter({powerPreference: "high-performance"}).catch(() => null);
  if (!adapter) return {refusal: navigator.gpu ? "WebGPU finds no GPU here." : "This browser has no WebGPU."};
  const {vendor = "", architecture = "", isFallbackAdapter = false} = adapter.info ?? {};
  const software = isFallbackAdapter || architecture === "swiftshader";
  if (software && !insists) return {refusal: "WebGPU finds only a software adapter, which is slower than WebAssembly."};
  const half = adapter.features.has("shader-f16");
  const variant = (half && variantFor("gpu", "fp16")) || variantFor("gpu", "fp32");
  if (!variant)
    return {refusal: `This site has no graphs that the GPU can run${half ? "" : ": it has no 16-bit shaders and needs fp32-gpu"}.`};
  return {provider: "webgpu", variant, threads: 1, reasons: [], device: [vendor, architecture, software ? "software" : ""].filter(Boolean).join(" ")};
}

function variantFor(device, precision) {
  return Object.values(manifest.variants).find(variant => variant.device === device && variant.precision === precision);
}

function cores() { return navigator.hardwareConcurrency || 1; }

// Threads need two headers that many hosts do not send: a service worker adds them after one reload.
async function isReloading() {
  if (window.crossOriginIsolated || cores() < 2 || !navigator.serviceWorker) return false;
  try {
    if (sessionStorage.getItem("isolation")) return false;
    sessionStorage.setItem("isolation", "tried");
    await navigator.serviceWorker.register("isolation.js");
    await navigator.serviceWorker.ready;
  } catch {
    return false;
  }
  location.reload();
  return true;
}

function showPlan() {
  const {provider, variant, threads, reasons, device} = plan, {precision} = variant;
  const slow = provider === "wasm" && threads === 1 && cores() > 1;
  const detail = provider === "webgpu" ? device : threads === 1 ? "1 thread" : `${threads} threads`;
  measure("provider", provider === "webgpu" ? "WebGPU" : "WASM", [detail, precision.toUpperCase()].filter(Boolean).join(", "));
  const random = manifest.weights.random ? ["The weights of this model are random: its masks mean nothing."] : [];
  const single = slow ? ["It has one thread, because this page is not isolated by its host or by a service worker."] : [];
  at("hint").textContent = [...random, ...reasons, ...single].join(" ");
}

// The worker. When it fails, another one takes its place: a lost GPU gets one more chance, then WASM runs.
function startWorker() {
  stopWorker();
  worker = new Worker("segmenter.js", {type: "module"});
  worker.onmessage = ({data}) => receive(data);
  worker.onerror = event => recover(event.message || "segmenter.js cannot be loaded");
  worker.postMessage({provider: plan.provider, threads: plan.threads, variant: plan.variant, files: manifest.files});
  show("", "loading");
  hold();
}

function stopWorker() {
  worker?.terminate();
  worker = null;
  ready = busy = false;
  restart = true;
}

function receive(data) {
  if (data.failed) return recover(data.failed);
  if (data.lost !== undefined) return lose(data.lost);
  if (data.ready) {
    ready = true;
    plan.threads = data.threads;
    showPlan();
    show("", video.videoWidth ? "first frame" : "ready");
    invite(video.videoWidth ? "Computing the first frame" : INVITATION);
    return request();
  }
  if (data.loadedBytes) return invite(`Loading the model: ${(data.loadedBytes / 1e6).toFixed(0)} MB`);
  draw(data);
  request();
}

function lose(reason) {
  losses += 1;
  if (losses > 1) return recover(reason || "the GPU was lost");
  say("info", "The GPU was lost, and the page starts it again.");
  startWorker();
}

function recover(reason) {
  if (plan.provider === "webgpu") {
    plan = {...wasmPlan(), reasons: [`WebGPU failed (${reason}).`]};
    say("info", "WebGPU failed, and WebAssembly goes on.");
    showPlan();
    return startWorker();
  }
  stopWorker();
  video.pause();
  show("lost", "stopped");
  invite(INVITATION);
  say("lost", `The model stopped: ${reason}. Choose a video to try again.`);
}

// Sources.
function playFile(file) {
  begin({name: file.name, live: false}, () => { video.src = URL.createObjectURL(file); });
}

async function playSample() {
  try {
    const file = await (await fetched(document.body.dataset.sample)).blob();  // not every host can send parts of it
    begin({name: "sample", live: false}, () => { video.src = URL.createObjectURL(file); });
  } catch (error) {
    say("lost", `The sample cannot be loaded (${error.message}). Choose a video.`);
  }
}

async function playCamera() {
  if (!navigator.mediaDevices)
    return say("lost", "The browser offers a camera on https and on localhost only.");
  try {
    const stream = await navigator.mediaDevices.getUserMedia(CAMERA);
    for (const track of stream.getVideoTracks())
      track.onended = () => { say("lost", "The camera was disconnected. Choose another video."); show("lost", "lost"); };
    begin({name: "camera", live: true}, () => { video.srcObject = stream; });
  } catch (error) {
    const reasons = {NotAllowedError: "the browser was not allowed to use it", NotFoundError: "there is none", NotReadableError: "another program uses it"};
    say("lost", `The camera cannot be used: ${reasons[error.name] ?? error.message}.`);
  }
}

function begin(next, attach) {
  release();
  source = next;
  say();
  attach();
  video.playbackRate = video.defaultPlaybackRate = 1;
  restart = true;
  fresh = false;
  recent = [];
  at("title").textContent = next.name;
  at("caption").hidden = false;
  at("transport").hidden = false;
  at("place").hidden = next.live;
  video.play().catch(() => {});  // phones load nothing before; the error event says what is wrong
  worker ? hold() : startWorker();
}

function hold() {
  held = true;
  fresh = true;
  if (!source.live && video.readyState > 1) video.pause();
}

function release() {
  video.srcObject?.getTracks().forEach(track => { track.onended = null; track.stop(); });
  video.srcObject = null;
  if (video.src.startsWith("blob:")) URL.revokeObjectURL(video.src);
  video.removeAttribute("src");
}

video.onerror = () => {
  if (!video.getAttribute("src")) return;
  say("lost", `${source.name} cannot be played by this browser (${video.error?.message || "unknown format"}). MP4 with H.264 and WebM usually can.`);
  show("lost", "no video");
};
video.onloadedmetadata = () => {
  if (!video.videoWidth) {
    say("lost", `${source.name} has no pictures. Choose a video.`);
    return show("lost", "no video");
  }
  watch();
};
video.onloadeddata = () => {
  if (held) hold();
  request();
};
video.onseeking = () => { restart = true; };
video.onseeked = () => { fresh = true; request(); };
video.onplay = video.onpause = () => { at("pause").textContent = video.paused ? "play" : "pause"; };

// A new frame of the video is shown; older browsers cannot tell, so every repaint counts there.
let watched = 0;
function watch() {
  const number = ++watched, next = video.requestVideoFrameCallback ? "requestVideoFrameCallback" : "";
  const seen = () => {
    if (number !== watched) return;
    if (next || !video.paused) fresh = true;
    request();
    next ? video[next](seen) : requestAnimationFrame(seen);
  };
  next ? video[next](seen) : requestAnimationFrame(seen);
}

async function request() {
  if (!ready || busy || !fresh || document.hidden || video.readyState < 2 || !video.videoWidth) return;
  busy = true;
  fresh = false;
  const to = worker, message = {restart};
  if (restart) frames = 0;
  restart = false;
  begun = performance.now();
  try {
    message.picture = await picture();
    if (to === worker) to.postMessage(message, [message.picture]);
  } catch (error) {
    busy = false;
    restart = true;
    say("lost", `A frame of ${source.name} cannot be read (${error.message}).`);
  }
}

// The middle of the frame, in the shape that the model takes.
function picture() {
  const [height, width] = manifest.frame, {videoWidth, videoHeight} = video;
  const scale = Math.min(videoWidth / width, videoHeight / height);
  const cut = [width, height].map(side => Math.max(1, Math.round(side * scale)));
  const [x, y] = [(videoWidth - cut[0]) / 2, (videoHeight - cut[1]) / 2].map(Math.floor);
  const shrunk = Math.min(1, WIDEST / Math.max(...cut));
  const [resizeWidth, resizeHeight] = cut.map(side => Math.max(1, Math.round(side * shrunk)));
  return createImageBitmap(video, x, y, ...cut, shrunk < 1 ? {resizeWidth, resizeHeight, resizeQuality: "medium"} : {});
}

function draw({picture, mask, size: [height, width], ms, kept}) {
  busy = false;
  for (const [canvas, wide, high] of [[view.canvas, picture.width, picture.height], [view.tint, width, height]])
    if (canvas.width !== wide || canvas.height !== high) Object.assign(canvas, {width: wide, height: high});
  view.picture?.close();
  Object.assign(view, {picture, mask});
  compose(view);
  at("invitation").hidden = true;
  const now = performance.now();
  recent = [...recent.filter((each, place) => place === recent.length - 1 || now - each.at < RECENT_MS), {at: now, latency: now - begun}];
  frames += 1;
  view.canvas.dataset.number = frames;
  pace(now - begun);
  showNumbers(`${ms.toFixed(0)} ms in both graphs, whose state is on the ${kept}`);
  if (held) {
    held = false;
    if (document.hidden) hiddenWhilePlaying = true;
    else video.play().catch(() => {});
  }
  if (!video.paused) show("live", "live");
  document.dispatchEvent(new CustomEvent("segmented", {detail: {number: frames, picture, mask, width, height}}));
}

function pace(latency) {
  if (source.live) return;
  const rate = Math.min(1, Math.max(SLOWEST, 1000 / TRAINED_RATE / latency));
  if (Math.abs(rate / video.playbackRate - 1) > .2) video.playbackRate = rate;
}

function showNumbers(detail) {
  const span = recent.length > 1 ? recent.at(-1).at - recent[0].at : 0;
  const latency = recent.reduce((sum, each) => sum + each.latency, 0) / recent.length;
  measure("rate", formatted(span ? 1000 * (recent.length - 1) / span : null), "/s");
  measure("latency", formatted(latency), "ms", detail);
  measure("speed", source.live ? "live" : `${formatted(100 * video.playbackRate)}`, source.live ? "" : "%");
  at("frame").textContent = `frame ${frames}`;
  if (!source.live && document.activeElement !== at("place")) at("place").value = STEPS * video.currentTime / video.duration || 0;
  if (frames % 5 !== 1) return;
  showShares();
  const seen = [...at("seen").children].filter(row => row.querySelector("small").textContent);
  view.canvas.setAttribute("aria-label", `${source.name}, segmented: ${seen.map(row => row.textContent).join(", ")}`);
}

// What is said. Information goes by itself; an error stays until the next video.
let fading = 0;
function show(kind, text) {
  at("status").className = `pill ${kind}`;
  at("status").textContent = text;
}

function invite(text) { at("invitation").textContent = text; }

function say(kind = "", text = "") {
  clearTimeout(fading);
  if (kind === "info") fading = setTimeout(say, INFO_MS);
  at("notice").hidden = !text;
  at("notice").className = `notice ${kind}`;
  at("notice").textContent = text;
}

function stop(text) {
  show("lost", "stopped");
  say("lost", text);
}

// Controls.
at("choose").onclick = () => at("file").click();
at("file").onchange = ({target}) => { if (target.files[0]) playFile(target.files[0]); target.value = ""; };
at("camera").onclick = playCamera;
at("sample").onclick = playSample;
at("pause").onclick = () => {
  if (!video.paused) return video.pause();
  if (source.live) restart = true;
  if (!worker) return startWorker();
  video.play().catch(() => {});
};
at("place").oninput = ({target}) => { if (video.duration) video.currentTime = video.duration * target.value / STEPS; };
view.canvas.onpointermove = view.canvas.onpointerdown = event => { at("under").textContent = classUnder(view, event); };
view.canvas.onpointerleave = () => { at("under").textContent = ""; };
document.ondragover = event => { event.preventDefault(); document.body.classList.add("over"); };
document.ondragleave = event => { if (!event.relatedTarget) document.body.classList.remove("over"); };
document.ondrop = event => {
  event.preventDefault();
  document.body.classList.remove("over");
  const [file] = event.dataTransfer.files;
  if (file && manifest && plan) playFile(file);
};
document.onvisibilitychange = () => {
  if (document.hidden) {
    hiddenWhilePlaying = Boolean(source) && !video.paused;
    if (hiddenWhilePlaying && !source.live) video.pause();
    return;
  }
  if (hiddenWhilePlaying) {
    hiddenWhilePlaying = false;
    if (source.live) restart = fresh = true;
    else video.play().catch(() => {});
    say("info", "The video waited while this tab was in the background.");
  }
  request();
};
open();
