"""A broker that wants TLS and a password: the way in, the words when it stays shut, and no secret
in anything that is printed or logged.
"""

from __future__ import annotations

import logging
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import journal
from journal.errors import LogUnavailable
from journal.kafka_config import load
from journal.kafka_log import KafkaLog
from journal.log import append_and_wait
from tests import commands
from tests.broker.java import JavaBroker

pytestmark = pytest.mark.kafka

PASSWORD, WRONG = "open-sesame", "hunter2-hunter2"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OF_PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
OF_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PROJECTOR = "import sys; from projector.cli import main; sys.exit(main())"


def certificate_of(folder: Path) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, both PEM, in one file."""
    key, cert, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return both


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of the broker."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    return certificate_of(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def secured(certificate: Path) -> Iterator[str]:
    """ "host:port" of a listener that wants SASL_SSL from user "me", by any of the mechanisms."""
    reason = JavaBroker.missing()
    if reason is not None:
        pytest.skip(reason)
    listener = "listener.name.sasl_ssl"
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        f"{listener}.plain.sasl.jaas.config": f'{OF_PLAIN} required user_me="{PASSWORD}";',
        f"{listener}.scram-sha-256.sasl.jaas.config": f"{OF_SCRAM} required;",
        f"{listener}.scram-sha-512.sasl.jaas.config": f"{OF_SCRAM} required;",
    }
    broker = JavaBroker(properties, quick_restart=False)
    address = broker.also_listen("SASL_SSL")
    for mechanism in MECHANISMS[1:]:
        broker.format_options += ["--add-scram", f"{mechanism}=[name=me,password={PASSWORD}]"]
    try:
        broker.start()
        yield address
    finally:
        broker.stop()


def properties(
    folder: Path, trusted: Path | None, *, mechanism: str = "PLAIN", password: str = PASSWORD
) -> Path:
    file = folder / "client.properties"
    module = OF_PLAIN if mechanism == "PLAIN" else OF_SCRAM
    file.write_text(
        "security.protocol=SASL_SSL\n"
        f"sasl.mechanism={mechanism}\n"
        f'sasl.jaas.config={module} required \\\n  username="me" password="{password}";\n'
        + (f"ssl.truststore.type=PEM\nssl.truststore.location={trusted}\n" if trusted else "")
    )
    return file


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_with_the_right_properties_everything_works(
    secured: str,
    certificate: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mechanism: str,
) -> None:
    caplog.set_level(logging.DEBUG)
    config = load(properties(tmp_path, certificate, mechanism=mechanism))
    url = f"kafka://{secured}/{mechanism}"
    log = await KafkaLog.open(url, create=True, partitions=1, config=config)
    assert await append_and_wait(log, 0, b"key", b"value", 1) == 0
    assert [r.value for r in await anext(log.read(0, 0))] == [b"value"]
    assert [r.value for r in await anext(log.tail(0, 0))] == [b"value"]
    await log.report("group", {0: 1})
    await log.truncate(0, 1)
    assert await log.starts() == {0: 1}
    await log.close()
    assert "ApiVersionRequest" in caplog.text
    assert PASSWORD not in caplog.text


async def test_the_library_takes_the_file_of_the_environment_as_the_commands_do(
    secured: str, certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"kafka://{secured}/environment"
    config = properties(tmp_path, certificate)
    async with journal.connect(url, create=True, kafka_config=config) as j, j.task("t", "d") as t:
        await t.record_step(0, "in")
    with pytest.raises(LogUnavailable):
        await journal.connect(url).__aenter__()
    monkeypatch.setenv("JOURNAL_KAFKA_CONFIG", str(config))
    async with journal.connect(url) as j:
        assert (await j.state("t")).current_step == 1
    named = {"JOURNAL_KAFKA_CONFIG": str(config), "JOURNAL_LOG": url}
    for entry, arguments in ((commands.ENTRY, ["tasks"]), (PROJECTOR, ["run", "--once"])):
        done = commands.run(*arguments, entry=entry, cwd=tmp_path, **named)
        assert done.returncode == 0, done.stderr


def test_every_command_gets_in(secured: str, certificate: Path, tmp_path: Path) -> None:
    config = properties(tmp_path, certificate, mechanism="SCRAM-SHA-512")
    options = ["--log", f"kafka://{secured}/commands", "--kafka-config", str(config), "--debug"]
    for entry, arguments in [
        (commands.ENTRY, ["init", "--partitions", "1"]),
        (commands.ENTRY, ["doctor"]),
        (PROJECTOR, ["run", "--once"]),
    ]:
        done = commands.run(*arguments, *options, entry=entry, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert PASSWORD not in done.stdout + done.stderr


REFUSED = "it refuses the credentials; check user, password and sasl.mechanism"
UNTRUSTED = (
    "is not trusted (self-signed certificate); name its authority in ssl.truststore.location"
)


@pytest.mark.parametrize("debug", [False, True], ids=["plain", "debug"])
@pytest.mark.parametrize("trusted", [True, False], ids=["wrong password", "no such authority"])
def test_what_is_wrong_is_one_line(
    secured: str, certificate: Path, tmp_path: Path, trusted: bool, debug: bool
) -> None:
    config = properties(tmp_path, certificate if trusted else None, password=WRONG)
    options = ["--log", f"kafka://{secured}/t", "--kafka-config", str(config)]
    options += ["--debug"] if debug else []
    for entry, arguments in [
        (commands.ENTRY, ["tasks"]),
        (PROJECTOR, ["run", "--once"]),
        (PROJECTOR, ["status"]),
    ]:
        done = commands.run(*arguments, *options, entry=entry, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert WRONG not in done.stderr
        *trace, line = done.stderr.splitlines()
        assert f"cannot use Kafka at {secured}: " in line
        assert line.endswith(REFUSED if trusted else UNTRUSTED)
        assert bool(trace) == debug, trace


def test_the_doctor_says_so(secured: str, certificate: Path, tmp_path: Path) -> None:
    config = properties(tmp_path, certificate, password=WRONG)
    options = ["--log", f"kafka://{secured}/t", "--kafka-config", str(config), "--debug"]
    done = commands.run("doctor", *options, cwd=tmp_path)
    assert done.returncode == 1
    assert [line for line in done.stdout.splitlines() if REFUSED in line] != []
    assert WRONG not in done.stdout + done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_said_and_not_shown(
    secured: str,
    certificate: Path,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    mechanism: str,
) -> None:
    config = load(properties(tmp_path, certificate, mechanism=mechanism, password=WRONG))
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(LogUnavailable, match=REFUSED) as caught,
    ):
        await KafkaLog.open(f"kafka://{secured}/t", config=config)
    assert WRONG not in repr(caught.value)
    assert WRONG not in caplog.text


async def test_another_certificate_under_the_same_address_is_said(
    secured: str, certificate: Path, tmp_path: Path
) -> None:
    """As when somebody sits in between, or the authority was changed."""
    other = certificate_of(tmp_path)
    with pytest.raises(LogUnavailable, match=r"not trusted \(.*\); name its authority"):
        await KafkaLog.open(f"kafka://{secured}/t", config=load(properties(tmp_path, other)))


async def test_a_name_that_is_not_in_the_certificate_is_said(
    secured: str, certificate: Path, tmp_path: Path
) -> None:
    url = f"kafka://localhost:{secured.split(':')[1]}/t"
    with pytest.raises(LogUnavailable, match="its certificate is not for localhost; use a name"):
        await KafkaLog.open(url, config=load(properties(tmp_path, certificate)))


async def test_no_tls_where_it_is_wanted_is_said(secured: str) -> None:
    with pytest.raises(LogUnavailable, match=secured):
        await KafkaLog.open(f"kafka://{secured}/t", config={"request.timeout.ms": "1000"})
