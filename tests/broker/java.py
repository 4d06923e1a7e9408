"""Apache Kafka on this machine's Java: no Docker, about 4 s to start."""

from __future__ import annotations

import functools
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from tests.broker import jars
from tests.broker.base import Broker, BrokerFailed, free_ports, wait_until_serves

CLUSTER_ID = "5L6g3nShT-eMCtK--X86sw"
OPTIONS = ["-Xmx512m", "-XX:+UseSerialGC", "-Dlog4j2.level=WARN"]


@functools.cache
def _java_version() -> int | None:
    java = shutil.which("java")
    if java is None:
        return None
    run = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'version "(\d+)', run.stderr)
    return int(match[1]) if match else None


class _Listener(NamedTuple):
    protocol: str
    port: int
    advertised: str | None = None


def _listed(listeners: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in listeners.items())


class JavaBroker(Broker):
    def __init__(self, properties: dict[str, str], *, quick_restart: bool) -> None:
        super().__init__(properties, quick_restart=quick_restart)
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._ports = free_ports(2)
        self._listeners = {"PLAINTEXT": _Listener("PLAINTEXT", self._ports[0])}
        self.address = f"127.0.0.1:{self._ports[0]}"
        self.controller = f"127.0.0.1:{self._ports[1]}"
        self.format_options: list[str] = []
        """Of `kafka-storage format`, such as `--add-scram` with a user."""

    def also_listen(
        self, protocol: str, *, name: str | None = None, advertised: str | None = None
    ) -> str:
        """Before the first start: serve a security protocol too, at the address returned. Clients
        that come there are sent to `advertised` ("host:port"), by default the same."""
        (port,) = free_ports(1)
        self._listeners[name or protocol] = _Listener(protocol, port, advertised)
        return f"127.0.0.1:{port}"

    @classmethod
    def missing(cls) -> str | None:
        version = _java_version()
        if version is None or version < 17:
            return "Java 17 or newer is not on the PATH"
        return jars.missing()

    def start(self) -> None:
        if self._folder is None:
            self._folder = Path(tempfile.mkdtemp(prefix="journal-test-kafka-"))
            self._format(self._folder)
        assert self._process is None, "already running"
        with (self._folder / "output").open("ab") as output:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._folder / "server.properties")),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A Ctrl-C in the terminal is for the tests, which stop the broker themselves.
                start_new_session=True,
            )
        # Should this process be killed, its end of the pipe closes; broker and folder go too.
        self._watcher = subprocess.Popen(
            ["sh", "-c", 'read _; kill -9 "$0"; rm -rf "$1"', str(self._process.pid), self._folder],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        wait_until_serves(self, lambda: self._process is None or self._process.poll() is not None)

    def kill(self) -> None:
        # The watcher first: it must not outlive the pid that it would kill.
        for process in (self._watcher, self._process):
            if process is not None:
                process.kill()
                process.wait()
                if process.stdin is not None:
                    process.stdin.close()
        self._watcher = self._process = None

    def shut_down(self) -> None:
        """SIGTERM, as an operator would: it hands its partitions over first, and ends."""
        assert self._process is not None, "not running"
        self._process.terminate()
        self._process.wait()
        self.kill()

    def freeze(self) -> None:
        """SIGSTOP: it holds its connections and says nothing, until `thaw`."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self._process is not None, "not running"
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self.kill()
        folder, self._folder = self._folder, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

    def output(self) -> str:
        file = self._folder / "output" if self._folder else None
        return file.read_text(errors="replace")[-8000:] if file and file.exists() else ""

    def _java(self, *arguments: str) -> list[str]:
        return ["java", *OPTIONS, "-cp", f"{jars.folder()}/*", *arguments]

    def _format(self, folder: Path) -> None:
        listeners = {name: f"127.0.0.1:{at.port}" for name, at in self._listeners.items()}
        advertised = {
            name: at.advertised or listeners[name] for name, at in self._listeners.items()
        }
        protocols = ",".join(f"{name}:{at.protocol}" for name, at in self._listeners.items())
        controls = "controller" in self.properties["process.roles"]
        ours = {
            "controller.quorum.voters": f"1@{self.controller}",
            "listeners": _listed(listeners | ({"CONTROLLER": self.controller} if controls else {})),
            "advertised.listeners": _listed(advertised),
            "inter.broker.listener.name": "PLAINTEXT",
            "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocols}",
            "log.dirs": str(folder / "data"),
        }
        properties = folder / "server.properties"
        lines = [f"{name}={value}\n" for name, value in (ours | self.properties).items()]
        properties.write_text("".join(lines))
        command = ["format", "-t", CLUSTER_ID, "-c", str(properties), *self.format_options]
        run = subprocess.run(
            self._java("kafka.tools.StorageTool", *command),
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise BrokerFailed(f"formatting the broker's folder failed:\n{run.stdout}{run.stderr}")
