// A worker that segments one video: a picture in, its mask out. With WebGPU the features and the memory
// stay in buffers of the GPU; only the picture goes up, and the mask comes down.
const RUNTIMES = {
  webgpu: {script: "ort.webgpu.min.js", core: "ort-wasm-simd-threaded.asyncify"},
  wasm: {script: "ort.wasm.min.js", core: "ort-wasm-simd-threaded"},
};
const LIMITS = [
  "maxBufferSize", "maxStorageBufferBindingSize", "maxStorageBuffersPerShaderStage", "maxComputeWorkgroupStorageSize",
  "maxComputeInvocationsPerWorkgroup", "maxComputeWorkgroupSizeX", "maxComputeWorkgroupSizeY", "maxComputeWorkgroupSizeZ",
  "maxComputeWorkgroupsPerDimension",
];
const PATIENCE_MS = 500;
const FEATURES = ["shader-f16", "subgroups"];
let ort, device, encoder, decoder, state, pen, loadedBytes = 0;

onmessage = async ({data}) => {
  try {
    await (data.variant ? start(data) : segment(data));
  } catch (error) {
    if (device) await Promise.race([device.lost, new Promise(done => setTimeout(done, PATIENCE_MS))]);  // says it first
    postMessage({failed: String(error?.message ?? error).split("\n")[0]});
  }
};

// `variant` is an entry of the bundle's manifest, and `files` are its sizes and hashes.
async function start({provider, variant, files, threads}) {
  const runtime = RUNTIMES[provider];
  device = provider === "webgpu" ? await openDevice() : null;
  ort = await import(`./runtime/${runtime.script}`);
  ort.env.logLevel = "error";
  ort.env.wasm.numThreads = threads;
  ort.env.wasm.wasmPaths = {mjs: new URL(`runtime/${runtime.core}.js`, location.href)};
  ort.env.wasm.wasmBinary = await load(`runtime/${runtime.core}.wasm`);
  const features = variant.encoder.outputs.map(({name}) => name);
  const kept = variant.decoder.inputs.filter(({name}) => !features.includes(name));
  encoder = await open(variant.encoder, files, features);
  decoder = await open(variant.decoder, files, kept.filter(onDevice).map(({name}) => `${name}_out`));
  state = Object.fromEntries(kept.map(spec => [spec.name, zeros(spec)]));
  const [, height, width] = variant.encoder.inputs[0].shape;
  pen = new OffscreenCanvas(width, height).getContext("2d", {willReadFrequently: true});
  postMessage({ready: true, threads: ort.env.wasm.numThreads});
}

async function openDevice() {
  const adapter = await navigator.gpu.requestAdapter({powerPreference: "high-performance"});
  if (!adapter) throw new Error("WebGPU finds no GPU any more");
  const opened = await adapter.requestDevice({
    requiredFeatures: FEATURES.filter(name => adapter.features.has(name)),
    requiredLimits: Object.fromEntries(LIMITS.map(name => [name, adapter.limits[name]])),
  });
  opened.lost.then(({message}) => postMessage({lost: message.split("\n")[0]}));
  return opened;
}

async function open({file}, files, onGpu) {
  const graph = await load(`bundle/${file}`, files[file].sha256);
  return ort.InferenceSession.create(graph, device ? {
    executionProviders: [{name: "webgpu", device}],
    preferredOutputLocation: Object.fromEntries(onGpu.map(name => [name, "gpu-buffer"])),
  } : {executionProviders: ["wasm"]});
}

async function load(path, sha256) {
  const answer = await fetch(path);
  if (!answer.ok) throw new Error(`${path} cannot be loaded (${answer.status} ${answer.statusText})`);
  const parts = [];
  for (const reader = answer.body.getReader();;) {
    const {done, value} = await reader.read();
    if (done) break;
    parts.push(value);
    loadedBytes += value.length;
    postMessage({loadedBytes});
  }
  const content = await new Blob(parts).arrayBuffer();
  if (sha256 && self.crypto.subtle && await digest(content) !== sha256)
    throw new Error(`${path} is not the file of this site; copy the site to its host again`);
  return new Uint8Array(content);
}

async function digest(content) {
  const bytes = new Uint8Array(await crypto.subtle.digest("SHA-256", content));
  return [...bytes].map(byte => byte.toString(16).padStart(2, "0")).join("");
}

// The frame number stays on the CPU, which computes with it.
function onDevice({dtype}) { return device && dtype.startsWith("float"); }

const KINDS = {float32: Float32Array, int32: Int32Array, uint8: Uint8Array};
function zeros(spec) {
  const count = spec.shape.reduce((product, length) => product * length, 1);
  if (!onDevice(spec)) return new ort.Tensor(spec.dtype, new KINDS[spec.dtype](count), spec.shape);
  const bytes = count * (spec.dtype === "float16" ? 2 : 4);
  const buffer = device.createBuffer({  // WebGPU clears it
    size: Math.ceil(bytes / 16) * 16,
    usage: GPUBufferUsage.STORAGE | GPUBufferUsage.COPY_SRC | GPUBufferUsage.COPY_DST,
  });
  return ort.Tensor.fromGpuBuffer(buffer, {dataType: spec.dtype, dims: spec.shape, dispose: () => buffer.destroy()});
}

// `restart` begins a new video: frame number 0 lets the decoder ignore the memory.
async function segment({picture, restart}) {
  const {width, height} = pen.canvas, begun = performance.now();
  if (restart) state.frame = new ort.Tensor("int32", new Int32Array(1), [1]);
  pen.drawImage(picture, 0, 0, width, height);
  const features = await encoder.run({image: new ort.Tensor("uint8", pixels(width, height), [1, height, width, 3])});
  const {mask, ...rest} = await decoder.run({...features, ...state});
  const next = Object.fromEntries(Object.keys(state).map(name => [name, rest[`${name}_out`]]));
  for (const tensor of [...Object.values(features), ...Object.values(state)]) tensor.dispose();
  state = next;
  const classes = new Uint8Array(await mask.getData());
  const kept = Object.values(state).some(({location}) => location === "gpu-buffer") ? "GPU" : "CPU";
  const ms = performance.now() - begun;
  postMessage({picture, mask: classes, size: [height, width], ms, kept}, [picture, classes.buffer]);
}

function pixels(width, height) {
  const {data} = pen.getImageData(0, 0, width, height), rgb = new Uint8Array(3 * width * height);
  for (let from = 0, to = 0; to < rgb.length; from += 4) {
    rgb[to++] = data[from];
    rgb[to++] = data[from + 1];
    rgb[to++] = data[from + 2];
  }
  return rgb;
}
