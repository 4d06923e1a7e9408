"""Apache Kafka's own image in a container, by way of testcontainers.

`start` after `kill` relies on the image to accept a folder that is formatted already, as Apache's
own does.
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
import subprocess
from typing import Any

from tests.broker.base import Broker, BrokerFailed, free_ports, wait_until_serves

IMAGE = "apache/kafka:4.3.1"


@functools.cache
def _missing() -> str | None:
    if importlib.util.find_spec("testcontainers") is None:
        return "testcontainers is not installed"
    if shutil.which("docker") is None:
        return "the docker command is not on the PATH"
    run = subprocess.run(["docker", "info"], capture_output=True, check=False)
    return "no Docker engine answers" if run.returncode else None


class DockerBroker(Broker):
    def __init__(self, properties: dict[str, str], *, quick_restart: bool) -> None:
        super().__init__(properties, quick_restart=quick_restart)
        from testcontainers.core.container import DockerContainer

        (port,) = free_ports(1)
        container = DockerContainer(IMAGE).with_bind_ports(port, port)
        host = container.get_docker_client().host()
        self.address = f"{host}:{port}"
        # Clients come by the published port; the broker reaches itself by a listener of its
        # own, because the published address may not exist inside the container.
        ours = {
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": f"CLIENT://:{port},INTERNAL://:9092,CONTROLLER://:9093",
            "advertised.listeners": f"CLIENT://{self.address},INTERNAL://localhost:9092",
            "inter.broker.listener.name": "INTERNAL",
            "listener.security.protocol.map": (
                "CONTROLLER:PLAINTEXT,INTERNAL:PLAINTEXT,CLIENT:PLAINTEXT"
            ),
        }
        for name, value in (ours | self.properties).items():
            container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
        self._container: Any = container
        self._exists = False

    @classmethod
    def missing(cls) -> str | None:
        return _missing()

    def start(self) -> None:
        try:
            if self._exists:
                self._container.get_wrapped_container().start()
            else:
                self._container.start()
                self._exists = True
        except Exception as error:
            raise BrokerFailed(f"the container of {IMAGE} did not start: {error}") from error
        wait_until_serves(self, self._died)

    def kill(self) -> None:
        if self._exists and not self._died():
            self._container.get_wrapped_container().kill("SIGKILL")
            self._container.get_wrapped_container().wait()

    def stop(self) -> None:
        if self._exists:
            self._exists = False
            self._container.stop(force=True, delete_volume=True)

    def output(self) -> str:
        if not self._exists:
            return ""
        return str(self._container.get_wrapped_container().logs().decode(errors="replace"))[-8000:]

    def _died(self) -> bool:
        wrapped = self._container.get_wrapped_container()
        wrapped.reload()
        return bool(wrapped.status in {"exited", "dead"})
