// @ts-check
/** The conversation on the page: one article per turn, kept in view while it grows. */

/** Pixels from the bottom within which the reader counts as following along. */
const FOLLOW_PX = 80;

/** All turns in order, found again by the protocol's ids. */
export class Transcript {
  /**
   * @param {HTMLElement} root where turns are appended
   * @param {HTMLElement} scroller the element that scrolls
   * @param {HTMLElement} empty shown until the first turn
   */
  constructor(root, scroller, empty) {
    this.root = root;
    this.scroller = scroller;
    this.empty = empty;
    /** @type {Map<string, Turn>} */
    this.turns = new Map();
  }

  /**
   * The turn known as `id`, made at the end if it is new.
   * @param {string} id
   * @param {"user" | "assistant"} role
   * @param {TurnState} state of a new turn
   */
  turn(id, role, state) {
    const known = this.turns.get(id);
    if (known) return known;
    const turn = new Turn(role, state, (change) => this.following(change));
    this.turns.set(id, turn);
    this.following(() => {
      this.empty.hidden = true;
      this.root.append(turn.element);
    });
    return turn;
  }

  /** @param {string} id */
  find(id) {
    return this.turns.get(id);
  }

  /** Let a turn be found under a second id. @param {string} id @param {Turn} turn */
  alias(id, turn) {
    this.turns.set(id, turn);
  }

  /** End every turn that still grows, and draw a line: what follows is a new session. */
  breakOff() {
    if (!this.root.lastElementChild?.matches(".turn")) return;
    for (const turn of this.turns.values()) turn.breakOff();
    this.turns.clear();
    this.following(() => this.root.append(make("p", "divider", "The model starts afresh here")));
  }

  /** Apply a change; stay at the bottom if the reader was there. @param {() => void} change */
  following(change) {
    const { scrollHeight, scrollTop, clientHeight } = this.scroller;
    const follows = scrollHeight - scrollTop - clientHeight < FOLLOW_PX;
    change();
    if (follows) this.scroller.scrollTop = this.scroller.scrollHeight;
  }
}

/**
 * `listening`: words are coming in. `thinking`: no word yet. `answering`: text is streaming.
 * `interrupted`: ended early. `failed`: there is no text, or not all of it, because of a fault.
 * @typedef {"listening" | "thinking" | "answering" | "done" | "interrupted" | "failed"} TurnState
 */

/** What one side said, as far as it is known. */
export class Turn {
  /**
   * @param {"user" | "assistant"} role
   * @param {TurnState} state
   * @param {(change: () => void) => void} apply runs changes of the document
   */
  constructor(role, state, apply) {
    this.apply = apply;
    this.settled = make("span", "settled");
    this.pending = make("span", "pending");
    this.note = make("p", "note");
    this.timing = make("span", "timing");
    this.element = make("article", "turn");
    this.element.dataset.role = role;
    const who = make("h2", "who", role === "user" ? "You" : "Model");
    const words = make("p", "words");
    words.append(this.settled, this.pending);
    const side = make("header", "side");
    side.append(who, this.timing);
    const body = make("div", "body");
    body.append(words, this.note);
    this.element.append(side, body);
    this.setState(state);
  }

  /** The words that won't change any more. */
  get text() {
    return (this.settled.textContent ?? "").trim();
  }

  /** @param {string} text settled words, to follow the former ones */
  append(text) {
    this.apply(() => {
      this.settled.append(text);
      this.pending.textContent = "";
    });
  }

  /** @param {string} text unsettled words, in place of the former ones */
  guess(text) {
    this.apply(() => (this.pending.textContent = text));
  }

  /** @param {string} text all words, settled; empty if there were none */
  complete(text) {
    this.apply(() => {
      this.settled.textContent = text;
      this.pending.textContent = "";
    });
    this.finish("done", text.trim() ? "" : "No words heard");
  }

  /**
   * @param {TurnState} state
   * @param {string} note a few words on why, or nothing
   */
  finish(state, note) {
    this.apply(() => {
      this.pending.textContent = "";
      this.note.textContent = note;
      this.setState(state);
    });
  }

  /** End a turn that still grows; what was only guessed goes. */
  breakOff() {
    if (this.isOpen) this.finish("interrupted", "The connection was lost here");
  }

  /** The model no longer sees this turn. */
  forget() {
    this.apply(() => {
      this.element.classList.add("forgotten");
      this.note.textContent = "No longer in the model’s memory";
    });
  }

  /** @param {string} text @param {string} title */
  setTiming(text, title) {
    this.apply(() => {
      this.timing.textContent = text;
      this.timing.title = title;
    });
  }

  get isOpen() {
    return ["listening", "thinking", "answering"].includes(this.element.dataset.state ?? "");
  }

  /** @param {TurnState} state */
  setState(state) {
    this.element.dataset.state = state;
    this.element.setAttribute("aria-busy", String(this.isOpen));
  }
}

/**
 * @param {string} tag
 * @param {string} className
 * @param {string} text
 */
function make(tag, className, text = "") {
  const element = document.createElement(tag);
  element.className = className;
  element.textContent = text;
  return element;
}
