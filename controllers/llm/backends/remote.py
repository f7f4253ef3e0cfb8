"""Any OpenAI-compatible server: Ollama, vLLM, llama.cpp, LM Studio and others.

The answer's schema is asked for in the strictest way that the server takes: ``json_schema``, else
``json_object`` with a schema, else by words alone. Servers that take a way and then ignore it are
found out by their answers. Whatever comes is validated by the caller all the same.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from rudder.errors import ControllerError, SpecError

from ..answers import InvalidAnswer, parse_answer
from ..prompt import Prompt
from . import streamed
from .base import Backend, BackendError, Generated, Told, Trouble, Usage, estimated_tokens

if TYPE_CHECKING:
    import requests

_log = logging.getLogger(__name__)

Way = Literal["json_schema", "json_object", "words"]
WAYS: tuple[Way, ...] = ("json_schema", "json_object", "words")
_REFUSALS = (400, 404, 415, 422, 500, 501)
"""What servers say to a way of asking for a schema that they do not know."""
MAX_TOKENS = 256
MAX_BYTES = 256 * 1024
"""Of a reply; more is no answer to this question."""


class RemoteBackend(Backend):
    """Asks a server over HTTP.

    Args:
        model: its name on the server.
        url: of the API, up to and with ``/v1``.
        key_env: environment variable that holds the key; "" = none is sent.
        timeout_s: of a whole question, tries included.
        retries: further tries after a refusal, a cut connection or a status 429 or 5xx.
        open_after: failed questions in a row after which none is sent for ``rest_s``.
        rest_s: seconds; then one question is tried.
        context: tokens that the model takes.

    Raises:
        SpecError: a value out of range, or a URL that is none.
    """

    def __init__(
        self,
        model: str,
        url: str,
        key_env: str = "",
        timeout_s: float = 30.0,
        retries: int = 2,
        open_after: int = 5,
        rest_s: float = 30.0,
        context: int = 4096,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(f"url must look like http://127.0.0.1:8000/v1, found {url!r}")
        if parts.username or parts.password:
            raise SpecError(
                "url must hold no user or password: put the key into an environment "
                "variable and name that by key_env"
            )
        if timeout_s <= 0 or retries < 0 or open_after < 1 or rest_s < 0 or context < 512:
            raise SpecError(
                "timeout_s must be above 0, retries and rest_s from 0, open_after from 1, context "
                "from 512"
            )
        self._model, self._url = model, url.rstrip("/")
        self._key_env = key_env
        self._timeout_s, self._retries = timeout_s, retries
        self._breaker = Breaker(open_after, rest_s)
        self.context = context
        self._session: requests.Session | None = None
        self._ways = list(WAYS)
        self._ignores_schema = False
        self._served = ""

    def open(self, progress: Told) -> None:
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util.retry import Retry

        if self._key_env and self._key_env not in os.environ:
            raise ControllerError(
                f"the environment variable {self._key_env}, which should hold the key of "
                f"{self.host}, is not set"
            )
        progress("reaching the server", 0.0)
        retry = Retry(
            total=self._retries,
            status_forcelist=(429, 500, 502, 503, 504),
            allowed_methods=None,
            backoff_factor=0.1,
            backoff_jitter=0.1,
            backoff_max=max(0.1, self._timeout_s / 4),
            respect_retry_after_header=False,
            raise_on_status=False,
        )
        session = requests.Session()
        session.trust_env = False  # no proxy, no .netrc: the key goes to this server only
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=retry, pool_maxsize=1))
        self._session = session
        progress("reaching the server", 1.0)

    def _headers(self) -> dict[str, str]:
        if not self._key_env:
            return {}
        return {"Authorization": f"Bearer {os.environ.get(self._key_env, '')}"}

    @property
    def host(self) -> str:
        """Name and port of the server."""
        return urlsplit(self._url).netloc

    def prepare(self, progress: Told) -> None:
        """Nothing: tokens are estimated."""

    def count_tokens(self, text: str) -> int:
        return estimated_tokens(text)

    def rendered(self, prompt: Prompt, schema: Mapping[str, Any]) -> str:
        body = self._body(prompt, schema, None, self._ways[0])
        return json.dumps(body, indent=1, ensure_ascii=False)

    def offered(self) -> list[str]:
        """Names of the models that the server says it has.

        Raises:
            BackendError: it cannot be asked.
        """
        import requests

        with requests.Session() as session:
            session.trust_env = False
            try:
                reply = session.get(
                    f"{self._url}/models", headers=self._headers(), timeout=5.0,
                    allow_redirects=False,
                )  # fmt: skip
                if reply.status_code != 200:
                    raise BackendError("http", f"{self.host}: status {reply.status_code}")
                return [str(model["id"]) for model in reply.json()["data"]]
            except requests.RequestException as error:
                trouble = self._trouble(error, False)
                raise BackendError(trouble, f"{self.host}: {type(error).__name__}") from None
            except (ValueError, KeyError, TypeError):
                raise BackendError("broken", f"{self.host} sent no list of models") from None

    def generate(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None = None
    ) -> Generated:
        self._breaker.check(self.host)
        try:
            found = self._asked(prompt, schema, seed)
        except BackendError:
            self._breaker.failed()
            raise
        self._breaker.succeeded()
        return found

    def facts(self) -> dict[str, Any]:
        return {
            "backend": "openai",
            "model": self._model,
            "server": self.host,
            "served": self._served or None,
            "weights": None,
            "precision": None,
            "structured_by": self._ways[0],
            "ignores_schema": self._ignores_schema,
        }

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    def _asked(self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None) -> Generated:
        end = time.monotonic() + self._timeout_s
        for plainer, way in enumerate(self._ways):
            status, kind, body = self._post(self._body(prompt, schema, seed, way), end)
            if status < 400:
                # Remembered only now: a server that was just ill refuses every way.
                self._ways = self._ways[plainer:]
                return self._read(body, kind, way)
            if status not in _REFUSALS:
                break
            # The server may not know this way of asking for a schema; a plainer one may do.
            _log.info("%s refuses %s (status %d)", self.host, way, status)
        raise BackendError("http", f"{self.host} answered with status {status}")

    def _body(
        self, prompt: Prompt, schema: Mapping[str, Any], seed: int | None, way: Way
    ) -> dict[str, Any]:
        body: dict[str, Any] = {
            "model": self._model,
            "messages": [
                {"role": "system", "content": prompt.static},
                {"role": "user", "content": prompt.dynamic},
            ],
            "max_tokens": MAX_TOKENS,
            "temperature": 0.0 if seed is None else 1.0,
            "stream": False,
        }
        if seed is not None:
            body["seed"] = seed
        if way == "json_schema":
            named = {"name": "answer", "strict": True, "schema": schema}
            body["response_format"] = {"type": "json_schema", "json_schema": named}
        elif way == "json_object":
            body["response_format"] = {"type": "json_object", "schema": schema}
        return body

    def _post(self, body: Mapping[str, Any], end: float) -> tuple[int, str, bytes]:
        """Status, content type and body; the whole reply has to be here by ``end``."""
        import requests

        session = self._session
        if session is None:
            raise ControllerError("the server was not opened")
        left = end - time.monotonic()
        if left <= 0:
            raise BackendError("timeout", f"no answer of {self.host} in {self._timeout_s:g} s")
        # The library's timeout is one between bytes: a server that drips would never meet it.
        guard = _Guard(left)
        try:
            with session.post(
                f"{self._url}/chat/completions", json=body, headers=self._headers(), timeout=left,
                stream=True, allow_redirects=False,
            ) as reply:  # fmt: skip
                guard.watch(reply)
                received = b""
                for block in reply.iter_content(1 << 14):
                    received += block
                    if len(received) > MAX_BYTES:
                        raise BackendError(
                            "too long", f"{self.host} sent more than {MAX_BYTES:,} bytes"
                        )
                if guard.hit:
                    raise requests.Timeout
                if reply.status_code in range(300, 400):
                    raise BackendError("http", f"{self.host} redirects elsewhere")
                return reply.status_code, reply.headers.get("Content-Type", ""), received
        except requests.RequestException as error:
            # A body that stalls is a ConnectionError to the library, like a server that is gone.
            trouble = self._trouble(error, guard.hit or time.monotonic() >= end)
            # The error's own text may hold headers: only its kind is told.
            raise BackendError(trouble, f"{self.host}: {type(error).__name__}") from None
        finally:
            guard.end()

    @staticmethod
    def _trouble(error: Exception, late: bool) -> Trouble:
        import requests

        if late or isinstance(error, requests.Timeout):
            return "timeout"
        if isinstance(error, requests.exceptions.ChunkedEncodingError):
            return "broken"
        return "refused" if isinstance(error, requests.ConnectionError) else "broken"

    def _read(self, body: bytes, kind: str, way: Way) -> Generated:
        try:
            # Some servers stream although they are asked not to.
            streams = kind.startswith(streamed.EVENT_STREAM)
            reply = streamed.whole(body) if streams else json.loads(body)
            message = reply["choices"][0]["message"]
            text = message["content"] or ""
            usage = reply.get("usage") or {}
            tokens = Usage(
                int(usage.get("prompt_tokens") or 0), 0, int(usage.get("completion_tokens") or 0)
            )
            self._served = str(reply.get("model", ""))
        except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
            raise BackendError(
                "broken", f"{self.host} sent no chat completion ({type(error).__name__})"
            ) from None
        if not isinstance(text, str):
            raise BackendError("broken", f"{self.host} sent no text")
        return Generated(text, tokens, {"structured_by": way, **self._notice(text, way)})

    def _notice(self, text: str, way: Way) -> dict[str, Any]:
        """Find out a server that takes a schema and does not hold to it."""
        if way == "words":
            return {}
        try:
            parse_answer(text)
        except InvalidAnswer:
            if not self._ignores_schema:
                _log.warning("%s takes a schema by %s and ignores it", self.host, way)
            self._ignores_schema = True
            return {"ignores_schema": True}
        return {}


class Breaker:
    """Sends nothing for a while after too many failures in a row.

    Args:
        open_after: failures in a row.
        rest_s: seconds; then one question goes through, and decides.
    """

    def __init__(self, open_after: int, rest_s: float) -> None:
        self._open_after, self._rest_s = open_after, rest_s
        self._failures = 0
        self._closed_at = 0.0

    def check(self, host: str) -> None:
        """Raises :class:`BackendError` while it is open."""
        left = self._closed_at - time.monotonic()
        if self._failures >= self._open_after and left > 0:
            raise BackendError(
                "circuit open", f"{self._failures} failures of {host}; next try in {left:.1f} s"
            )

    def failed(self) -> None:
        self._failures += 1
        self._closed_at = time.monotonic() + self._rest_s

    def succeeded(self) -> None:
        self._failures = 0


class _Guard:
    """Closes a reply that is not complete after some seconds."""

    def __init__(self, seconds: float) -> None:
        self.hit = False
        self._reply: requests.Response | None = None
        self._timer = threading.Timer(seconds, self._late)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, reply: requests.Response) -> None:
        self._reply = reply
        if self.hit:
            self._cut()

    def end(self) -> None:
        self._timer.cancel()

    def _late(self) -> None:
        self.hit = True
        self._cut()

    def _cut(self) -> None:
        connection = getattr(getattr(self._reply, "raw", None), "_connection", None)
        sock = getattr(connection, "sock", None)
        if sock is not None:
            import contextlib
            import socket

            # Closing alone would not wake a thread that reads.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
