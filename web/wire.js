// @ts-check
/**
 * The Realtime protocol over a WebSocket: connection, keys, reconnection, events in and out. It knows
 * how a session opens and ends; what the events in between mean is `conversation.js`'s.
 */

/** One event of the protocol, either way. @typedef {{ type: string, [field: string]: any }} WireEvent */

/**
 * Where the connection stands. `waiting`: it was lost and is tried again in `retryInMs`. `closed`: it
 * ended for a reason that trying again doesn't cure. `locked`: the server wants a key.
 * @typedef {"connecting" | "ready" | "waiting" | "closed" | "locked"} WireState
 * `wasOpen`: a session was lost, not only an attempt.
 * @typedef {{ code: number, message: string, retryInMs: number, wasOpen: boolean }} WireEnd
 */

/** Unsent bytes past which sound is dropped rather than queued: about 15 s of it. */
const MAX_BUFFERED_BYTES = 1 << 20;
const FIRST_RETRY_MS = 500;
const MAX_RETRY_MS = 15000;
const FULL_RETRY_MS = 5000;
/** Close codes after which the same request may succeed (RFC 6455 and the IANA registry). */
const RETRYABLE_CODES = new Set([1001, 1005, 1006, 1011, 1012, 1013, 1015]);
export const SERVER_FULL = 1013;

const SESSION = {
  type: "realtime",
  audio: {
    input: {
      format: { type: "audio/pcm", rate: 24000 },
      transcription: { model: "default" },
      turn_detection: { type: "server_vad" },
    },
  },
};

/** One session at a time, replaced by a fresh one when it is lost. */
export class Wire {
  /**
   * @param {{
   *   url: URL,
   *   onEvent: (event: WireEvent) => void,
   *   onState: (state: WireState, end: WireEnd | null) => void,
   * }} options
   */
  constructor({ url, onEvent, onState }) {
    this.url = url;
    this.onEvent = onEvent;
    this.onState = onState;
    /** @type {WireState} */
    this.state = "closed";
    this.key = "";
    this.attempts = 0;
    this.eventCount = 0;
    /** @type {WebSocket | null} */
    this.socket = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.retryTimer = undefined;
    /** The server's last error, which usually explains the close after it. */
    this.lastError = { code: "", message: "" };
  }

  /** Connect now, unless connected or about to be. Throws SyntaxError if the key can't be sent. */
  connect() {
    clearTimeout(this.retryTimer);
    if (this.socket) return;
    const protocols = ["realtime"];
    // Browsers can't set headers on a WebSocket; the protocol carries the key here instead.
    if (this.key) protocols.push(`openai-insecure-api-key.${this.key}`);
    const socket = new WebSocket(this.url, protocols);
    this.socket = socket;
    this.lastError = { code: "", message: "" };
    this.setState("connecting", null);
    socket.onmessage = ({ data }) => this.receive(JSON.parse(data));
    socket.onclose = ({ code, reason }) => this.closed(code, reason);
  }

  /** Don't wait for the next retry: the tab came back into view, or the network did. */
  hurry() {
    if (this.state === "waiting") this.connect();
  }

  /**
   * Send an event; returns the id that an error about it would name, or null if there is no session.
   * @param {WireEvent} event
   * @returns {string | null}
   */
  send(event) {
    if (this.state !== "ready" || !this.socket) return null;
    const eventId = `page_${++this.eventCount}`;
    this.socket.send(JSON.stringify({ event_id: eventId, ...event }));
    return eventId;
  }

  /**
   * Send sound; returns false where it was dropped (no session, or the network can't keep up).
   * @param {Int16Array} samples 24 kHz mono
   */
  sendAudio(samples) {
    if (this.state !== "ready" || !this.socket) return false;
    if (this.socket.bufferedAmount > MAX_BUFFERED_BYTES) return false;
    const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
    const audio = btoa(String.fromCharCode(...bytes)); // a packet is 960 bytes: safe as arguments
    this.socket.send(JSON.stringify({ type: "input_audio_buffer.append", audio }));
    return true;
  }

  /** @param {WireEvent} event */
  receive(event) {
    if (event.type === "session.created") {
      this.socket?.send(JSON.stringify({ type: "session.update", session: SESSION }));
    } else if (event.type === "session.updated" && this.state === "connecting") {
      this.attempts = 0;
      this.setState("ready", null);
    } else if (event.type === "error") {
      this.lastError = { code: event.error.code ?? "", message: event.error.message };
    }
    this.onEvent(event);
  }

  /** @param {number} code @param {string} reason */
  closed(code, reason) {
    this.socket = null;
    const { message } = this.lastError;
    const end = { code, message, retryInMs: 0, wasOpen: this.state === "ready" };
    if (this.lastError.code === "invalid_api_key" || reason.endsWith("invalid_api_key")) {
      this.setState("locked", end);
    } else if (RETRYABLE_CODES.has(code) || this.lastError.code === "session_expired") {
      const base = code === SERVER_FULL ? FULL_RETRY_MS : FIRST_RETRY_MS;
      const backoff = Math.min(MAX_RETRY_MS, base * 2 ** this.attempts++);
      // Spread over half its length, so that a restarted server isn't met by everybody at once.
      end.retryInMs = backoff * (0.75 + Math.random() / 2);
      this.retryTimer = setTimeout(() => this.connect(), end.retryInMs);
      this.setState("waiting", end);
    } else {
      this.setState("closed", end);
    }
  }

  /** @param {WireState} state @param {WireEnd | null} end */
  setState(state, end) {
    this.state = state;
    this.onState(state, end);
  }
}
