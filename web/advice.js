// @ts-check
/** Problems in words: what happened, and what the reader can do about it. */

import { SERVER_FULL } from "./wire.js";

/** @typedef {{ title: string, text: string }} Advice */

/**
 * Why the microphone can't be used.
 * @param {unknown} error what `openMicrophone` rejected with
 * @param {{ secure: boolean, port: string, hostname: string }} page
 * @returns {Advice}
 */
export function microphoneAdvice(error, { secure, port, hostname }) {
  if (!secure) {
    const tunnel = `ssh -L ${port}:127.0.0.1:${port} ${hostname}`;
    return {
      title: "The browser keeps the microphone from this address",
      text:
        "Sound is only given to pages over https, or to pages from your own machine. Run " +
        `“${tunnel}” and open http://localhost:${port}, or put the server behind https. ` +
        "Typing works here meanwhile.",
    };
  }
  const name = error instanceof DOMException ? error.name : "";
  return (
    MICROPHONE_ADVICE[name] ?? {
      title: "The microphone did not start",
      text: `The browser said: ${error instanceof Error ? error.message : String(error)}`,
    }
  );
}

/** By name of the DOMException. @type {Record<string, Advice>} */
const MICROPHONE_ADVICE = {
  NotAllowedError: {
    title: "The microphone is not allowed",
    text:
      "Allow it in the browser’s site settings (the icon beside the address), or in the system’s " +
      "privacy settings, and press the microphone again.",
  },
  NotFoundError: {
    title: "No microphone found",
    text: "Plug one in, or switch it on in the system’s sound settings, and press again.",
  },
  NotReadableError: {
    title: "The microphone is busy",
    text: "Another program may hold it. Close that program and press again.",
  },
  SecurityError: {
    title: "The microphone is blocked for this page",
    text: "A setting of the browser or of the page that embeds this one forbids it.",
  },
};

/** The device went away while it was in use. @type {Advice} */
export const MICROPHONE_LOST = {
  title: "The microphone went away",
  text: "It was unplugged, or its permission withdrawn. Press the microphone to try again.",
};

/**
 * Why the connection ended.
 * @param {import("./wire.js").WireEnd} end
 * @returns {Advice}
 */
export function connectionAdvice({ code, message, retryInMs }) {
  const seconds = Math.max(1, Math.round(retryInMs / 1000));
  const again = retryInMs > 0 ? `Trying again in ${seconds} s.` : "";
  if (code === SERVER_FULL) {
    return { title: "The server is full", text: `${message || "It has no room now."} ${again}` };
  }
  if (message) return { title: "The server ended the session", text: `${message} ${again}` };
  if (code === 1006) {
    return {
      title: "No connection to the server",
      text: `Is it running, and is this machine online? ${again}`,
    };
  }
  return { title: "The connection ended", text: again || `The server closed it (code ${code}).` };
}
