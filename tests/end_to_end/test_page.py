"""The page in a real browser: Debian's Chromium, its fake microphone playing a recording."""

import re
import wave
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, WebSocketRoute, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--use-fake-device-for-media-stream",
    "--use-fake-ui-for-media-stream",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]
MODEL_TIMEOUT_MS = 60_000
YOURS, ANSWER = '[data-role="user"]', '[data-role="assistant"]'
REALTIME = re.compile(r"/v1/realtime")
# Firefox can't join a microphone to an audio graph of another rate than the device's.
REFUSE_OTHER_RATES = """
const join = AudioContext.prototype.createMediaStreamSource;
AudioContext.prototype.createMediaStreamSource = function (stream) {
  if (this.sampleRate === 24000) throw new DOMException("other rate", "NotSupportedError");
  return join.call(this, stream);
};
"""
# What stood in the user's turn, at every change, while it was still being heard.
RECORD_GROWTH = """() => {
  window.growth = [];
  const note = () => {
    const words = document.querySelector('[data-role="user"][data-state="listening"] .words');
    if (words) growth.push(words.textContent);
  };
  const changes = { childList: true, characterData: true, subtree: true };
  new MutationObserver(note).observe(document.getElementById("transcript"), changes);
}"""


@pytest.fixture(scope="module")
def microphone_clip(spoken_question: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The question after half a second of silence: the start of a recording can get lost."""
    clip = tmp_path_factory.mktemp("microphone") / "question.wav"
    with wave.open(str(spoken_question)) as source, wave.open(str(clip), "wb") as padded:
        padded.setparams(source.getparams())
        frame = bytes(source.getsampwidth() * source.getnchannels())
        padded.writeframes(frame * (source.getframerate() // 2))
        padded.writeframes(source.readframes(source.getnframes()))
    return clip


@pytest.fixture(scope="module")
def browser(microphone_clip: Path) -> Iterator[Browser]:
    """Chromium whose microphone says the question once and is silent then."""
    microphone = f"--use-file-for-fake-audio-capture={microphone_clip}%noloop"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*FLAGS, microphone], timeout=MODEL_TIMEOUT_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, server_url: str) -> Iterator[Page]:
    """A blank tab of its own; the browser may report no error, the content policy's among them."""
    context = browser.new_context(base_url=server_url)
    context.set_default_timeout(MODEL_TIMEOUT_MS)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda line: errors.append(line.text) if line.type == "error" else None)
    yield page
    context.close()
    assert errors == []


def open_page(page: Page) -> None:
    """Load the page and wait for its session."""
    page.goto("/")
    expect(page.locator("#state")).to_have_attribute(
        "data-state", "ready", timeout=MODEL_TIMEOUT_MS
    )


def start_speaking(page: Page) -> None:
    """Switch the microphone on and wait until the server hears speech."""
    page.click("#mic")
    expect(page.locator("#mic")).to_have_attribute("aria-pressed", "true")
    expect(page.locator(YOURS)).to_be_visible(timeout=MODEL_TIMEOUT_MS)


@pytest.mark.parametrize("mixes_rates", [True, False])
def test_spoken_question_grows_word_by_word_and_is_answered(page: Page, mixes_rates: bool) -> None:
    if not mixes_rates:
        page.add_init_script(REFUSE_OTHER_RATES)
    open_page(page)
    page.evaluate(RECORD_GROWTH)
    start_speaking(page)
    heard = page.locator(f'{YOURS}[data-state="done"] .settled')
    expect(heard).to_contain_text(
        re.compile("capital of france", re.IGNORECASE), timeout=MODEL_TIMEOUT_MS
    )
    answer = page.locator(f'{ANSWER}[data-state="done"] .settled').first
    expect(answer).to_contain_text("Paris", timeout=MODEL_TIMEOUT_MS)
    expect(page.locator("#latency")).to_contain_text(re.compile(r"\d+ ms after you stopped"))
    assert page.evaluate("growth.some((words) => words.trim())")  # before the turn was complete


def test_switching_the_microphone_off_ends_the_turn(page: Page) -> None:
    open_page(page)
    start_speaking(page)
    page.click("#mic")
    expect(page.locator("#mic")).to_have_attribute("aria-pressed", "false")
    expect(page.locator(YOURS)).to_have_attribute("data-state", "done", timeout=MODEL_TIMEOUT_MS)


def test_typed_question_needs_only_the_keyboard(page: Page) -> None:
    open_page(page)
    for _ in range(12):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "text":
            break
    page.keyboard.type("What is the capital of France?")
    page.keyboard.press("Enter")
    expect(page.locator(f"{YOURS} .settled")).to_have_text("What is the capital of France?")
    answer = page.locator(f'{ANSWER}[data-state="done"] .settled')
    expect(answer).to_contain_text("Paris", timeout=MODEL_TIMEOUT_MS)
    expect(page.locator("#latency")).to_contain_text(re.compile(r"\d+ ms to first words"))
    expect(page.locator("#text")).to_be_focused()


def test_escape_stops_the_answer_and_keeps_what_was_said(page: Page) -> None:
    open_page(page)
    page.fill("#text", "Write a long story about the sea.")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{ANSWER} .settled:not(:empty)")
    expect(page.locator("#stop")).to_be_visible()
    page.keyboard.press("Escape")
    stopped = page.locator(f'{ANSWER}[data-state="interrupted"]')
    expect(stopped.locator(".note")).to_have_text("Stopped")
    expect(stopped.locator(".settled")).not_to_be_empty()
    expect(page.locator("#stop")).to_be_hidden()


def test_question_during_an_answer_replaces_it(page: Page) -> None:
    open_page(page)
    page.fill("#text", "Write a long story about the sea.")
    page.keyboard.press("Enter")
    page.wait_for_selector(f"{ANSWER} .settled:not(:empty)")
    page.fill("#text", "What is the capital of France?")
    page.keyboard.press("Enter")
    answers = page.locator(ANSWER)
    expect(answers.nth(0)).to_have_attribute("data-state", "interrupted")
    expect(answers.nth(1)).to_contain_text("Paris", timeout=MODEL_TIMEOUT_MS)


def test_refused_microphone_is_explained(page: Page) -> None:
    page.add_init_script(
        "navigator.mediaDevices.getUserMedia = "
        "() => Promise.reject(new DOMException('denied', 'NotAllowedError'))"
    )
    open_page(page)
    page.click("#mic")
    expect(page.locator("#notice")).to_contain_text("The microphone is not allowed")
    expect(page.locator("#mic")).to_have_attribute("aria-pressed", "false")


def test_key_is_asked_for_only_when_the_server_wants_one(page: Page) -> None:
    def refuse(socket: WebSocketRoute) -> None:
        socket.send(
            '{"type":"error","event_id":"evt_1","error":{"type":"invalid_request_error",'
            '"code":"invalid_api_key","message":"Incorrect API key.","param":null,"event_id":null}}'
        )
        socket.close(code=3000, reason="invalid_request_error.invalid_api_key")

    page.route_web_socket(REALTIME, refuse)
    page.goto("/")
    expect(page.locator("#key-form")).to_be_visible()
    expect(page.locator("#key")).to_be_focused()
    page.keyboard.type("wrong")
    page.keyboard.press("Enter")
    expect(page.locator("#notice")).to_contain_text("That key was refused")


def test_full_server_is_tried_again(page: Page) -> None:
    page.route_web_socket(REALTIME, lambda socket: socket.close(code=1013, reason="full"))
    page.goto("/")
    expect(page.locator("#notice")).to_contain_text("The server is full")
    expect(page.locator("#notice")).to_contain_text("Trying again in")
    expect(page.locator("#state")).to_have_attribute("data-state", "waiting")


def test_lost_session_is_replaced_and_the_break_is_shown(page: Page) -> None:
    both_ends: list[WebSocketRoute] = []

    def relay(socket: WebSocketRoute) -> None:
        both_ends.extend((socket.connect_to_server(), socket))

    page.route_web_socket(REALTIME, relay)
    open_page(page)
    page.fill("#text", "What is the capital of France?")
    page.keyboard.press("Enter")
    expect(page.locator(f'{ANSWER}[data-state="done"]')).to_be_visible(timeout=MODEL_TIMEOUT_MS)
    for end in both_ends[:2]:
        end.close(code=1012, reason="restart")
    expect(page.locator(".divider")).to_be_visible()
    expect(page.locator("#state")).to_have_attribute(
        "data-state", "ready", timeout=MODEL_TIMEOUT_MS
    )
    expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.parametrize("rate_hz", [16_000, 44_100, 48_000])
def test_resampler_keeps_speech_and_stops_aliases(page: Page, rate_hz: int) -> None:
    page.goto("/")
    gains = page.evaluate(
        """async (rate) => {
          const { Resampler } = await import("/resampler.js");
          return [300, 3000, 7000, 14000, 20000].filter((hz) => hz < rate / 2).map((hz) => {
            const resampler = new Resampler(rate, 24000);
            const output = [];
            for (let start = 0; start < rate; start += 128) {
              const tone = Float32Array.from({ length: Math.min(128, rate - start) },
                (_, i) => Math.sin((2 * Math.PI * hz * (start + i)) / rate));
              output.push(...resampler.process(tone));
            }
            const steady = output.slice(1000, -1000);
            const power = steady.reduce((sum, x) => sum + 2 * x * x, 0) / steady.length;
            return [hz, 10 * Math.log10(power + 1e-12), output.length];
          });
        }""",
        rate_hz,
    )
    for hz, gain_db, num_samples in gains:
        assert num_samples == 24_000
        if hz < 0.4 * min(rate_hz, 24_000):
            assert gain_db == pytest.approx(0, abs=0.1)
        elif hz > 12_000:
            assert gain_db < -75
