"""Sound, pictures and videos inside Realtime events: base64 and data URIs → bytes, strictly.

What the bytes are is found out by decoding them, in another process; the media type that a client
names is not believed.
"""

import binascii

from sensorium.gateway.dialects.realtime_faults import quote
from sensorium.gateway.errors import PeerError

MAX_MEDIA_BYTES = 15 * 1024 * 1024
"""Decoded, per append or part."""


def media_bytes(text: str, param: str, max_bytes: int = MAX_MEDIA_BYTES) -> bytes:
    """Decode base64 (RFC 4648 section 4, padded); raises PeerError. The length is checked first."""
    if len(text) > -(-max_bytes // 3) * 4:
        raise PeerError(
            "invalid_value",
            f"Invalid value for '{param}': about {len(text) * 3 // 4} bytes; "
            f"expected at most {max_bytes}.",
            param=param,
        )
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as fault:
        raise PeerError(
            "invalid_value",
            f"Invalid value for '{param}': {fault}; expected base64 with A-Z a-z 0-9 + / "
            "and padding.",
            param=param,
        ) from None


def data_uri_bytes(uri: str, kind: str, param: str) -> bytes:
    """Return the bytes of `data:<kind>/…;base64,…` (RFC 2397); raises PeerError.

    Nothing is ever fetched: a URL would let a client use this server to reach others.
    """
    head, comma, body = uri.partition(",")
    if not comma or not head.startswith(f"data:{kind}/") or not head.endswith(";base64"):
        raise PeerError(
            "invalid_value",
            f"Invalid value for '{param}': '{quote(uri)}'; expected a data URI, "
            f"data:{kind}/…;base64,…; URLs are not fetched.",
            param=param,
        )
    if not body:
        raise PeerError("invalid_value", f"Invalid value for '{param}': it is empty.", param=param)
    return media_bytes(body, param)
