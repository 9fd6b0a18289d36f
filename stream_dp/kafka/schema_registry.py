"""Schema registries with Confluent's interface: which schema has a given number."""

from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from stream_dp.config.connections import TlsFiles, tls_context
from stream_dp.config.events_section import EventsSection
from stream_dp.config.secret import read_secret
from stream_dp.errors import StreamDpError, needs_extra
from stream_dp.events.mapping.schema import LARGEST_SCHEMA, Schema

_ANSWER_SECONDS = 5.0
_QUESTION_SECONDS = 10.0
"""For a schema with all that it refers to, however many requests that takes and however slowly bytes come."""

_T = TypeVar("_T")

_LARGEST_ANSWER = 1 << 20
_MOST_REFERENCES = 100
_NOT_FOUND, _OK = 404, 200


class _Reference(msgspec.Struct):
    name: str
    subject: str
    version: int


class _Registered(msgspec.Struct):
    """What an answer says of a schema."""

    schema: str
    kind: str = msgspec.field(default="AVRO", name="schemaType")
    references: list[_Reference] | None = None


class _Nothing(msgspec.Struct):
    """What an answer with status 404 says: 40401 to 40403 for a subject, a version or a schema."""

    error_code: int


_DECODER, _NOTHING = msgspec.json.Decoder(_Registered), msgspec.json.Decoder(_Nothing)


class RegistryAway(StreamDpError):
    """The registry does not answer, or not us; the message says why."""


class NoSchema(StreamDpError):
    """The registry answers, and gives no schema under this number that can be taken.

    `sure`: that is what it says, and no failure of its own.
    """

    def __init__(self, why: str, sure: bool) -> None:
        super().__init__(why)
        self.sure = sure


class NotRegistered(NoSchema):
    """The registry says that there is none."""

    def __init__(self) -> None:
        super().__init__("it knows none", sure=True)


class SchemaRegistry:
    """A registry, asked over one connection.  Nothing is connected before the first question."""

    def __init__(self, section: EventsSection) -> None:
        """Raises `SettingsError` for a password or a certificate that cannot be read."""
        with needs_extra("a schema registry", "worker"):
            import httpx2

        self._failure = httpx2.HTTPError
        self.address = section.schema_registry or ""
        files = TlsFiles(section.registry_ca_file, section.registry_client_cert, section.registry_client_key)
        login: tuple[str, str] | None = None
        if section.registry_username is not None and section.registry_password is not None:
            password = read_secret("password of the schema registry", section.registry_password)
            login = section.registry_username, password
        verify = tls_context("registry", files) if self.address.startswith("https:") else True
        self._new_client: Callable[[], Any] = lambda: httpx2.Client(
            base_url=self.address.rstrip("/") + "/",
            auth=login,
            verify=verify,
            headers={"Accept-Encoding": "identity"},  # so that no answer is larger than what is received
            timeout=_ANSWER_SECONDS,
            trust_env=False,
        )
        self._client = self._new_client()
        self._questions = set[Future[Any]]()

    def close(self) -> None:
        """Leave it; a question that is under way in another thread ends with `RegistryAway`."""
        self._client.close()
        for question in [*self._questions]:
            with suppress(InvalidStateError):  # it has just been answered
                question.set_exception(RegistryAway("it was left"))

    def schema(self, number: int) -> Schema:
        """The schema under a number, with those that it refers to.  Raises `NoSchema` or `RegistryAway`."""
        return self._in_time(lambda: self._whole(self._asked(f"schemas/ids/{number}")))

    def newest(self, subject: str) -> tuple[str, Schema]:
        """What kind the newest schema of a subject is, such as AVRO, and the schema; see `schema`."""

        def newest() -> tuple[str, Schema]:
            found = self._asked(f"subjects/{quote(subject, safe='')}/versions/latest")
            return found.kind, self._whole(found)

        return self._in_time(newest)

    def _in_time(self, question: Callable[[], _T]) -> _T:
        """The answer, or `RegistryAway` when it takes too long: what is under way then ends with its connection.

        A limit on each read would not end one that sends a byte now and then.
        """
        client, answer = self._client, Future[_T]()

        def ask() -> None:
            with suppress(InvalidStateError):  # nobody waits any more
                try:
                    answer.set_result(question())
                except BaseException as error:
                    answer.set_exception(error)

        self._questions.add(answer)
        Thread(target=ask, daemon=True, name="schema-registry").start()
        try:
            return answer.result(_QUESTION_SECONDS)
        except TimeoutError:
            if self._client is client:
                self._client = self._new_client()
            client.close()
            raise RegistryAway("its answer takes too long") from None
        finally:
            self._questions.discard(answer)

    def _whole(self, found: _Registered) -> Schema:
        """A schema with those that it refers to."""
        known: dict[str, str] = {}
        self._follow(found, known, set())
        schema = Schema(found.schema, tuple(known.items()))
        if len(msgspec.json.encode(schema)) > LARGEST_SCHEMA:
            raise NoSchema(
                f"it gives one that has more than {LARGEST_SCHEMA} bytes with its references", sure=True
            )
        return schema

    def schema_or_none(self, number: int) -> Schema | None:
        """The schema of this number, or None if there is none.  Raises `RegistryAway`."""
        try:
            return self.schema(number)
        except NoSchema:
            return None

    def _follow(self, found: _Registered, known: dict[str, str], begun: set[str]) -> None:
        """Note the references of what was found, each behind its own; `begun`: those that are noted, or about to be."""
        for each in found.references or ():
            if each.name in known:
                continue
            if each.name in begun:
                raise NoSchema("it gives one whose references lead back to themselves", sure=True)
            if len(begun) == _MOST_REFERENCES:
                raise NoSchema(f"it gives one with more than {_MOST_REFERENCES} references", sure=True)
            begun.add(each.name)
            referred = self._asked(f"subjects/{quote(each.subject, safe='')}/versions/{each.version}")
            self._follow(referred, known, begun)
            known[each.name] = referred.schema

    def _asked(self, place: str) -> _Registered:
        status, content = self._get(place)
        if status == _NOT_FOUND:
            if not _is_answer(content) and self._get("schemas/types")[0] == _NOT_FOUND:
                raise RegistryAway("it has no registry under this path; Apicurio's is under /apis/ccompat/v7")
            raise NotRegistered
        if status != _OK:
            if (probe := self._get("schemas/types")[0]) != _OK:
                raise RegistryAway(f"it answers with status {probe}")
            raise NoSchema(f"it answers with status {status}", sure=False)
        if len(content) > _LARGEST_ANSWER:
            raise NoSchema(f"it gives one of more than {_LARGEST_ANSWER} bytes", sure=True)
        try:
            return _DECODER.decode(content)
        except msgspec.ValidationError:
            raise NoSchema("it gives none", sure=False) from None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise RegistryAway("it answers with something that is no JSON") from None

    def _get(self, place: str) -> tuple[int, bytes]:
        """Status and content; of a large content, the beginning, which is more than may be taken."""
        content = bytearray()
        try:
            with self._client.stream("GET", place) as answer:
                for part in answer.iter_raw():
                    content += part
                    if len(content) > _LARGEST_ANSWER:
                        break
                return answer.status_code, bytes(content)
        except (
            self._failure,
            RuntimeError,
        ) as error:  # or it was closed, because another question took too long
            raise RegistryAway(type(error).__name__) from None


def _is_answer(content: bytes) -> bool:
    """Whether a registry says that it knows no such thing, and not a server that it has no such page."""
    try:
        return _NOTHING.decode(content).error_code // 100 == _NOT_FOUND
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
