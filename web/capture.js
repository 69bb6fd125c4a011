// @ts-check
/** The microphone: permission, device and audio graph. Packets come out; nothing here knows the wire. */

/**
 * 20 ms of 24 kHz mono sound; `level` is its root mean square (0 to 1), `capturedAt` the time of its
 * last sample on `performance.now()`'s clock, in ms.
 * @typedef {{ samples: Int16Array, level: number, capturedAt: number }} Packet
 */

export const RATE_HZ = 24000;
export const PACKET_SAMPLES = 480;

/**
 * Open the microphone. Must follow a user's gesture, or the browser keeps the audio graph suspended.
 * Rejects with a DOMException whose name says what is wrong (`advice.js` puts it into words).
 * @param {{ onPacket: (packet: Packet) => void, onEnded: () => void }} listener `onEnded`: the
 *   device went away or the permission was withdrawn
 * @returns {Promise<{ stop: () => void }>}
 */
export async function openMicrophone({ onPacket, onEnded }) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new DOMException("the microphone needs a secure context", "SecurityError");
  }
  const stream = await navigator.mediaDevices.getUserMedia({
    audio: {
      channelCount: 1,
      echoCancellation: true,
      noiseSuppression: true,
      autoGainControl: true,
    },
  });
  const [track] = stream.getAudioTracks();
  /** @type {MediaStreamAudioSourceNode | null} */
  let source = null;
  try {
    source = joinGraph(stream);
    const context = /** @type {AudioContext} */ (source.context);
    await context.audioWorklet.addModule("/worklet.js");
    void context.resume();
    const node = new AudioWorkletNode(context, "packetiser", {
      channelCount: 1,
      channelCountMode: "explicit",
    });
    const settings = /** @type {MediaTrackSettings & { latency?: number }} */ (track.getSettings());
    const deviceLatencyMs = (settings.latency ?? 0) * 1000;
    node.port.onmessage = ({ data }) =>
      onPacket({ ...data, capturedAt: performance.now() - deviceLatencyMs });
    // Its output is silence; a node that leads nowhere is not run by every browser.
    source.connect(node).connect(context.destination);
    track.addEventListener("ended", onEnded);
    return {
      stop() {
        track.removeEventListener("ended", onEnded);
        node.port.onmessage = null;
        release(track, source);
      },
    };
  } catch (error) {
    release(track, source);
    throw error;
  }
}

/**
 * Join the stream to an audio graph at the wire's rate: the browser then resamples at the device.
 * Firefox can't join a microphone to a graph of another rate, so there the graph keeps the device's
 * and the worklet converts.
 * @param {MediaStream} stream
 */
function joinGraph(stream) {
  const atWireRate = new AudioContext({ sampleRate: RATE_HZ, latencyHint: "interactive" });
  try {
    return atWireRate.createMediaStreamSource(stream);
  } catch {
    void atWireRate.close();
    return new AudioContext({ latencyHint: "interactive" }).createMediaStreamSource(stream);
  }
}

/** @param {MediaStreamTrack} track @param {MediaStreamAudioSourceNode | null} source */
function release(track, source) {
  track.stop();
  if (source) void (/** @type {AudioContext} */ (source.context).close());
}
