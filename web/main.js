// @ts-check
/** The page: joins its elements to the microphone, the conversation and the connection. */

import { MICROPHONE_LOST, connectionAdvice, microphoneAdvice } from "./advice.js";
import { openMicrophone } from "./capture.js";
import { Conversation } from "./conversation.js";
import { Meter } from "./meter.js";
import { Transcript } from "./transcript.js";
import { Wire } from "./wire.js";

const KEY_NAME = "sensorium.key";
const STATE_WORDS = {
  connecting: "Connecting",
  ready: "Connected",
  waiting: "Reconnecting",
  closed: "Disconnected",
  locked: "Key needed",
};

/** What the latency measures. */
const SPOKEN_HELP =
  "From the last sound of your speech to the first piece of the answer, on this browser’s clock. " +
  "It includes the silence that the server waits for before it takes your turn as ended.";
const TYPED_HELP = "From sending to the first piece of the answer, on this browser’s clock.";

/** @template {HTMLElement} T @param {string} id @returns {T} */
const byId = (id) => /** @type {T} */ (document.getElementById(id));

const mic = /** @type {HTMLButtonElement} */ (byId("mic"));
const askForm = /** @type {HTMLFormElement} */ (byId("ask"));
const text = /** @type {HTMLTextAreaElement} */ (byId("text"));
const stop = /** @type {HTMLButtonElement} */ (byId("stop"));
const send = /** @type {HTMLButtonElement} */ (byId("send"));
const state = byId("state");
const hint = byId("hint");
const keyForm = /** @type {HTMLFormElement} */ (byId("key-form"));
const keyField = /** @type {HTMLInputElement} */ (byId("key"));

const meter = new Meter(/** @type {HTMLCanvasElement} */ (byId("meter")));
const transcript = new Transcript(byId("transcript"), byId("scroller"), byId("empty"));
const wire = new Wire({
  url: realtimeUrl(),
  onEvent: (event) => conversation.receive(event),
  onState: showState,
});
const conversation = new Conversation(wire, transcript, {
  onSession: (session) => (byId("model").textContent = session.model),
  onSpeaking: (speaking) => {
    if (microphone) hint.textContent = speaking ? "Hearing you" : "Listening";
  },
  onAnswering: showAnswering,
  onLatency: showLatency,
  onProblem: (title, words) => showNotice({ title, text: words }),
  onSaid: (sentence) => (byId("announcer").textContent = sentence),
});

/** Where the session lives: the page's own host. */
function realtimeUrl() {
  const url = new URL("/v1/realtime?model=default&live_transcripts=true", location.href);
  url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
  return url;
}

/**
 * @param {import("./wire.js").WireState} now
 * @param {import("./wire.js").WireEnd | null} end
 */
function showState(now, end) {
  state.textContent = STATE_WORDS[now];
  state.dataset.state = now;
  if (end?.wasOpen) conversation.lost();
  keyForm.hidden = now !== "locked";
  if (now === "ready") {
    if (wire.key) sessionStorage.setItem(KEY_NAME, wire.key);
    hideNotice();
    conversation.opened();
  } else if (now === "locked") {
    sessionStorage.removeItem(KEY_NAME);
    hideNotice();
    if (wire.key) showNotice({ title: "That key was refused", text: "Check it and try again." });
    keyField.focus();
  } else if (end && !(wire.attempts > 1 && byId("notice").hidden)) {
    // Once dismissed, the notice stays away while the retries go on.
    showNotice(connectionAdvice(end), { label: "Connect now", run: () => wire.connect() });
  }
}

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  wire.key = keyField.value.trim();
  try {
    wire.connect();
  } catch {
    wire.key = "";
    showNotice({ title: "That can’t be a key", text: "Keys have no spaces or quotes in them." });
  }
});

document.addEventListener("visibilitychange", () => {
  if (!document.hidden) wire.hurry();
});
addEventListener("online", () => wire.hurry());

/** @type {{ stop: () => void } | null} */
let microphone = null;

mic.addEventListener("click", () => (microphone ? closeMicrophone() : startMicrophone()));

async function startMicrophone() {
  if (mic.dataset.state === "starting") return;
  showMicrophone("starting", "Asking for the microphone");
  try {
    microphone = await openMicrophone({ onPacket: hear, onEnded: microphoneLost });
    hideNotice();
    showMicrophone("on", "Listening");
    wire.connect();
  } catch (error) {
    showMicrophone("off", "Microphone off");
    const { hostname, port } = location;
    showNotice(microphoneAdvice(error, { secure: isSecureContext, hostname, port: port || "80" }));
  }
}

function closeMicrophone() {
  microphone?.stop();
  microphone = null;
  conversation.hearNothingMore();
  mic.style.setProperty("--level", "0");
  showMicrophone("off", "Microphone off");
  meter.clear();
}

function microphoneLost() {
  closeMicrophone();
  showNotice(MICROPHONE_LOST);
}

/** @param {import("./capture.js").Packet} packet */
function hear(packet) {
  conversation.hear(packet);
  mic.style.setProperty("--level", meter.push(packet.level).toFixed(2));
}

/** @param {"off" | "starting" | "on"} now @param {string} words */
function showMicrophone(now, words) {
  mic.dataset.state = now;
  mic.setAttribute("aria-pressed", String(now === "on"));
  mic.title = now === "on" ? "Stop listening" : "Start listening";
  document.body.classList.toggle("live", now === "on");
  hint.textContent = words;
}

askForm.addEventListener("submit", (event) => {
  event.preventDefault();
  ask(text.value);
  text.value = "";
});

text.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  askForm.requestSubmit();
});

for (const button of document.querySelectorAll("[data-ask]")) {
  button.addEventListener("click", () => {
    ask(button.textContent ?? "");
    text.focus();
  });
}

/** @param {string} words */
function ask(words) {
  if (!words.trim()) return;
  conversation.ask(words.trim());
  wire.connect();
}

stop.addEventListener("click", () => conversation.stop());
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !stop.hidden) conversation.stop();
});

/** @param {boolean} answering */
function showAnswering(answering) {
  const focusLost = document.activeElement === stop;
  stop.hidden = !answering;
  send.hidden = answering;
  if (focusLost && !answering) text.focus();
}

/** @param {number} ms @param {boolean} spoken from the end of speech; else from sending a text */
function showLatency(ms, spoken) {
  const latency = byId("latency");
  latency.textContent = `${Math.round(ms)} ms ${spoken ? "after you stopped" : "to first words"}`;
  latency.hidden = false;
  byId("latency-help").textContent = spoken ? SPOKEN_HELP : TYPED_HELP;
}

/**
 * @param {import("./advice.js").Advice} advice
 * @param {{ label: string, run: () => void }} [action]
 */
function showNotice(advice, action) {
  const button = byId("notice-action");
  byId("notice-title").textContent = advice.title;
  byId("notice-text").textContent = advice.text;
  button.hidden = !action;
  button.textContent = action?.label ?? "";
  button.onclick = action?.run ?? null;
  byId("notice").hidden = false;
}

function hideNotice() {
  byId("notice").hidden = true;
}

byId("notice-close").addEventListener("click", hideNotice);

wire.key = sessionStorage.getItem(KEY_NAME) ?? "";
wire.connect();
