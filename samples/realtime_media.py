"""Show a picture and play a recording to a Sensorium server; print the answer as it comes.

python samples/realtime_media.py PICTURE CLIP.wav [http://127.0.0.1:8000]

The recording has 16 bits, one channel, and 16, 24 or 48 kHz. All it takes is `openai[realtime]`.
"""

import asyncio
import base64
import mimetypes
import sys
import wave
from pathlib import Path
from typing import Any

from openai import AsyncOpenAI


async def ask(image_url: str, sound: bytes, rate_hz: int, server: str) -> int:
    """Return the exit status: 1 if the server complains."""
    client = AsyncOpenAI(base_url=f"{server}/v1", api_key="none")
    async with client.realtime.connect(model="default") as session:
        form = {"type": "audio/pcm", "rate": rate_hz}
        # Without turn detection the recording is one turn, whatever pauses it has.
        audio: Any = {"input": {"format": form, "turn_detection": None}}
        await session.session.update(session={"type": "realtime", "audio": audio})
        seen: Any = {"type": "input_image", "image_url": image_url}
        await session.conversation.item.create(
            item={"type": "message", "role": "user", "content": [seen]}
        )
        size = rate_hz // 25  # bytes of 20 ms, as from a microphone
        for begin in range(0, len(sound), size):
            packet = base64.b64encode(sound[begin : begin + size]).decode()
            await session.input_audio_buffer.append(audio=packet)
        await session.input_audio_buffer.commit()
        await session.response.create()
        async for event in session:
            if event.type == "response.output_text.delta":
                print(event.delta, end="", flush=True)
            elif event.type == "error":
                print(event.error.message, file=sys.stderr)
                return 1
            elif event.type == "response.done":
                break
    print()
    return 0


if __name__ == "__main__":
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    path, url = Path(sys.argv[1]), sys.argv[3] if sys.argv[3:] else "http://127.0.0.1:8000"
    data = base64.b64encode(path.read_bytes()).decode()
    with wave.open(sys.argv[2]) as clip:
        recording, rate = clip.readframes(clip.getnframes()), clip.getframerate()
    picture = f"data:{mimetypes.guess_type(path)[0]};base64,{data}"
    sys.exit(asyncio.run(ask(picture, recording, rate, url)))
