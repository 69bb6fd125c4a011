// @ts-check
/** What each event of the protocol means for the page: turns, latency, and whose move it is. */

import { PACKET_SAMPLES, RATE_HZ } from "./capture.js";
import { LatencyMeter, MediaClock } from "./latency.js";

/** @typedef {import("./wire.js").WireEvent} WireEvent */

/** Errors that say no more than that the user and the server crossed on the way. */
const HARMLESS_CODES = new Set(["response_cancel_not_active", "input_audio_buffer_commit_empty"]);
/** Sound sent after the microphone is switched off, beyond the server's own silence window. */
const TAIL_MARGIN_MS = 400;

/** Follows one session after another and shows them as one conversation. */
export class Conversation {
  /**
   * @param {import("./wire.js").Wire} wire
   * @param {import("./transcript.js").Transcript} transcript
   * @param {{
   *   onSession: (session: any) => void,
   *   onSpeaking: (speaking: boolean) => void,
   *   onAnswering: (answering: boolean) => void,
   *   onLatency: (ms: number, spoken: boolean) => void,
   *   onProblem: (title: string, text: string) => void,
   *   onSaid: (sentence: string) => void,
   * }} view
   */
  constructor(wire, transcript, view) {
    this.wire = wire;
    this.transcript = transcript;
    this.view = view;
    /** Typed turns that wait for a session or for the model to stop. @type {{ id: string, text: string }[]} */
    this.outbox = [];
    this.session = freshSession();
  }

  /** A session is open: send what was typed before it was. */
  opened() {
    this.flush();
  }

  /** The session is gone. */
  lost() {
    this.transcript.breakOff();
    this.session = freshSession();
    this.view.onAnswering(false);
    this.view.onSpeaking(false);
  }

  /** Send what the microphone heard. @param {import("./capture.js").Packet} packet */
  hear({ samples, capturedAt }) {
    if (this.wire.sendAudio(samples)) {
      this.session.clock.sent((samples.length * 1000) / RATE_HZ, capturedAt);
    }
  }

  /** The microphone is off: let the server hear the silence that ends a turn. */
  hearNothingMore() {
    const now = performance.now();
    const packets = Math.ceil(
      ((this.session.silenceMs + TAIL_MARGIN_MS) * RATE_HZ) / 1000 / PACKET_SAMPLES,
    );
    for (let i = 0; i < packets; i++) {
      this.hear({ samples: new Int16Array(PACKET_SAMPLES), level: 0, capturedAt: now });
    }
  }

  /** Ask in writing; an answer under way is stopped first. @param {string} text */
  ask(text) {
    const id = `page_${crypto.getRandomValues(new Uint32Array(2)).join("")}`;
    this.transcript.turn(id, "user", "done").complete(text);
    this.outbox.push({ id, text });
    this.stop();
    this.flush();
  }

  /** Stop the answer under way. */
  stop() {
    if (this.session.responseId)
      this.wire.send({ type: "response.cancel", response_id: this.session.responseId });
  }

  flush() {
    if (this.wire.state !== "ready" || this.session.responseId || this.session.requestId) return;
    const items = this.outbox.splice(0);
    if (items.length === 0) return;
    for (const { id, text } of items) {
      const content = [{ type: "input_text", text }];
      const item = { id, type: "message", role: "user", content };
      this.wire.send({ type: "conversation.item.create", item });
    }
    this.session.spoken = false;
    this.session.latency.turnEnded(performance.now());
    this.session.requestId = this.wire.send({ type: "response.create" });
  }

  /** @param {WireEvent} event */
  receive(event) {
    this.handlers[event.type]?.call(this, event);
  }

  /** @type {Record<string, (this: Conversation, event: any) => void>} */
  handlers = {
    "session.created": ({ session }) => this.view.onSession(session),
    "session.updated": ({ session }) => {
      this.session.silenceMs =
        session.audio?.input?.turn_detection?.silence_duration_ms ?? this.session.silenceMs;
    },
    "input_audio_buffer.speech_started": ({ item_id }) => {
      this.transcript.turn(item_id, "user", "listening");
      this.view.onSpeaking(true);
    },
    "input_audio_buffer.speech_stopped": ({ audio_end_ms }) => {
      this.session.spoken = true;
      // The reported end includes the silence that the server waited for.
      this.session.latency.turnEnded(
        this.session.clock.wallTime(audio_end_ms - this.session.silenceMs),
      );
      this.view.onSpeaking(false);
    },
    "conversation.item.added": ({ item }) => this.itemAdded(item),
    "conversation.item.deleted": ({ item_id }) => this.transcript.find(item_id)?.forget(),
    "conversation.item.input_audio_transcription.delta": ({ item_id, delta }) =>
      this.transcript.turn(item_id, "user", "listening").append(delta),
    "conversation.item.input_audio_transcription.partial": ({ item_id, text }) =>
      this.transcript.turn(item_id, "user", "listening").guess(text),
    "conversation.item.input_audio_transcription.completed": ({ item_id, transcript }) => {
      this.transcript.turn(item_id, "user", "listening").complete(transcript);
      if (transcript.trim()) this.view.onSaid(`You said: ${transcript}`);
    },
    "conversation.item.input_audio_transcription.failed": ({ item_id, error }) => {
      const turn = this.transcript.turn(item_id, "user", "listening");
      turn.finish("failed", error.message || "These words could not be written down");
    },
    "response.created": ({ response }) => this.responseCreated(response),
    "response.output_item.added": ({ response_id, item }) => {
      const turn = this.transcript.find(response_id);
      if (turn) this.transcript.alias(item.id, turn);
    },
    "response.output_text.delta": ({ response_id, delta }) => this.textDelta(response_id, delta),
    "response.done": ({ response }) => this.responseDone(response),
    error: ({ error }) => this.failed(error),
  };

  /** @param {any} item */
  itemAdded(item) {
    if (item.type !== "message" || item.role !== "user") return;
    const [part] = item.content;
    if (part?.type === "input_audio") this.transcript.turn(item.id, "user", "listening");
  }

  /** @param {any} response */
  responseCreated({ id }) {
    this.session.responseId = id;
    this.session.requestId = null;
    this.session.latency.responseCreated(id);
    this.transcript.turn(id, "assistant", "thinking");
    this.view.onAnswering(true);
    if (this.outbox.length > 0) this.stop();
  }

  /** @param {string} responseId @param {string} delta */
  textDelta(responseId, delta) {
    const turn = this.transcript.turn(responseId, "assistant", "thinking");
    const ms = this.session.latency.firstText(responseId, performance.now());
    if (ms !== null) {
      const since = this.session.spoken ? "the end of your speech" : "sending";
      turn.setTiming(`${Math.round(ms)} ms`, `From ${since} to the first piece of the answer`);
      this.view.onLatency(ms, this.session.spoken);
    }
    if (turn.element.dataset.state === "thinking") turn.setState("answering");
    turn.append(delta);
  }

  /** @param {any} response */
  responseDone({ id, status, status_details: details }) {
    const turn = this.transcript.turn(id, "assistant", "thinking");
    this.session.latency.responseDone(id);
    if (status === "failed") {
      turn.finish("failed", details?.error?.message || "The model could not answer");
    } else if (status === "cancelled") {
      turn.finish("interrupted", details?.reason === "turn_detected" ? "Interrupted" : "Stopped");
    } else if (status === "incomplete") {
      turn.finish("interrupted", "Cut at the length limit");
    } else {
      turn.finish("done", turn.text ? "" : "The model said nothing");
    }
    if (turn.text) this.view.onSaid(`The model said: ${turn.text}`);
    if (this.session.responseId !== id) return;
    this.session.responseId = null;
    this.view.onAnswering(false);
    this.flush();
  }

  /** @param {any} error */
  failed({ type, code, message, event_id }) {
    if (!HARMLESS_CODES.has(code)) {
      const isOurs = type === "server_error";
      const title = isOurs ? "The server is in trouble" : "The server did not accept that";
      this.view.onProblem(title, message);
    }
    if (event_id && event_id === this.session.requestId) {
      this.session.requestId = null;
      this.flush();
    }
  }
}

/** What is known about one session and gone with it. */
function freshSession() {
  return {
    clock: new MediaClock(),
    latency: new LatencyMeter(),
    /** The silence that ends a turn, as the server has it. */
    silenceMs: 500,
    /** Whether the newest turn was spoken, not typed. */
    spoken: false,
    /** The answer under way. @type {string | null} */
    responseId: null,
    /** Event id of a `response.create` that has no answer yet. @type {string | null} */
    requestId: null,
  };
}
