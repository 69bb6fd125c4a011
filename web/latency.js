// @ts-check
/** From the end of what the user said to the first piece of the answer, on this browser's clock. */

/** Packets remembered: 60 s, longer than any endpointing waits. */
const MAX_MARKS = 3000;

/** Maps the protocol's media time (ms of sound ever appended to a session) to wall time. */
export class MediaClock {
  constructor() {
    this.sentMs = 0;
    /** @type {{ endMs: number, at: number }[]} */
    this.marks = [];
  }

  /**
   * Note a packet that went out.
   * @param {number} durationMs
   * @param {number} capturedAt `performance.now()` of its last sample
   */
  sent(durationMs, capturedAt) {
    this.sentMs += durationMs;
    this.marks.push({ endMs: this.sentMs, at: capturedAt });
    if (this.marks.length > MAX_MARKS) this.marks.splice(0, MAX_MARKS / 2);
  }

  /**
   * @param {number} mediaMs
   * @returns {number | null} `performance.now()` at which that sound was captured; null if not yet sent
   */
  wallTime(mediaMs) {
    const mark = this.marks.find(({ endMs }) => endMs >= mediaMs);
    return mark ? mark.at - (mark.endMs - mediaMs) : null;
  }
}

/** Pairs the end of each user turn with the first text of the response that follows it. */
export class LatencyMeter {
  constructor() {
    /** @type {number | null} */
    this.endedAt = null;
    /** @type {Map<string, number>} */
    this.waiting = new Map();
  }

  /** @param {number | null} at `performance.now()` at the last sound, or at sending a text */
  turnEnded(at) {
    this.endedAt = at;
  }

  /** @param {string} responseId */
  responseCreated(responseId) {
    if (this.endedAt !== null) this.waiting.set(responseId, this.endedAt);
    this.endedAt = null;
  }

  /** @param {string} responseId */
  responseDone(responseId) {
    this.waiting.delete(responseId);
  }

  /**
   * @param {string} responseId
   * @param {number} now
   * @returns {number | null} ms, at a response's first text; null at the later ones
   */
  firstText(responseId, now) {
    const endedAt = this.waiting.get(responseId);
    if (endedAt === undefined) return null;
    this.waiting.delete(responseId);
    return Math.max(0, now - endedAt);
  }
}
