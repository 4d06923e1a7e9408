"""A broker that wants TLS and a password: the way in, and the words when it stays shut."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from journal.errors import LogUnavailable
from journal.kafka_config import load
from journal.kafka_log import KafkaLog
from journal.log import append_and_wait
from tests.broker.java import JavaBroker

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A self-signed certificate of 127.0.0.1 with its key, both PEM, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not on the PATH")
    folder = tmp_path_factory.mktemp("tls")
    key, cert, both = folder / "key.pem", folder / "cert.pem", folder / "both.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    command += ["-keyout", str(key), "-out", str(cert)]
    subprocess.run(command, check=True, capture_output=True)
    both.write_text(key.read_text() + cert.read_text())
    return both


@pytest.fixture(scope="module")
def secured(certificate: Path) -> Iterator[str]:
    """ "host:port" of a listener that wants SASL_SSL, user "me", password "sesame"."""
    reason = JavaBroker.missing()
    if reason is not None:
        pytest.skip(reason)
    login = "org.apache.kafka.common.security.plain.PlainLoginModule"
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificate),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{login} required user_me="sesame";',
    }
    broker = JavaBroker(properties, quick_restart=False)
    address = broker.also_listen("SASL_SSL")
    try:
        broker.start()
        yield address
    finally:
        broker.stop()


def properties(
    folder: Path, certificate: Path, *, password: str = "sesame", more: str = ""
) -> Path:
    file = folder / "client.properties"
    file.write_text(
        "security.protocol=SASL_SSL\n"
        "sasl.mechanism=PLAIN\n"
        "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\\n"
        f'  username="me" password="{password}";\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={certificate}\n{more}"
    )
    return file


async def test_with_the_right_properties_everything_works(
    secured: str, certificate: Path, tmp_path: Path
) -> None:
    config = load(properties(tmp_path, certificate))
    log = await KafkaLog.open(f"kafka://{secured}/t", create=True, partitions=1, config=config)
    assert await append_and_wait(log, 0, b"key", b"value", 1) == 0
    assert [r.value for r in await anext(log.read(0, 0))] == [b"value"]
    assert [r.value for r in await anext(log.tail(0, 0))] == [b"value"]
    await log.truncate(0, 1)
    assert await log.starts() == {0: 1}
    await log.close()


async def test_a_wrong_password_is_said_and_not_shown(
    secured: str, certificate: Path, tmp_path: Path
) -> None:
    config = load(properties(tmp_path, certificate, password="hunter2"))
    with pytest.raises(LogUnavailable, match="refuses the credentials") as caught:
        await KafkaLog.open(f"kafka://{secured}/t", config=config)
    assert "hunter2" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_certificate_that_is_not_trusted_is_said(
    secured: str, certificate: Path, tmp_path: Path
) -> None:
    file = properties(tmp_path, certificate)
    lines = [line for line in file.read_text().splitlines() if "truststore" not in line]
    file.write_text("\n".join(lines))
    with pytest.raises(LogUnavailable, match="TLS"):
        await KafkaLog.open(f"kafka://{secured}/t", config=load(file))


async def test_a_name_that_is_not_in_the_certificate_is_said(
    secured: str, certificate: Path, tmp_path: Path
) -> None:
    url = f"kafka://localhost:{secured.split(':')[1]}/t"
    with pytest.raises(LogUnavailable, match="TLS"):
        await KafkaLog.open(url, config=load(properties(tmp_path, certificate)))


async def test_no_tls_where_it_is_wanted_is_said(secured: str) -> None:
    with pytest.raises(LogUnavailable, match=secured):
        await KafkaLog.open(f"kafka://{secured}/t", config={"request.timeout.ms": "1000"})
