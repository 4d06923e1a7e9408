"""Apache Kafka's jars, fetched once with Maven into the user's cache folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.broker.base import BrokerFailed

VERSION = "4.3.1"
LOG4J = "2.25.4"
POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId>
      <version>{VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.logging.log4j</groupId><artifactId>log4j-slf4j-impl</artifactId>
      <version>{LOG4J}</version>
    </dependency>
  </dependencies>
</project>
"""


def _target() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "step-journal-tests" / f"kafka-{VERSION}-log4j-{LOG4J}"


def missing() -> str | None:
    """Why the jars cannot be had here; None where they can."""
    if _target().exists() or shutil.which("mvn"):
        return None
    return "Maven (mvn) is not on the PATH and Kafka's jars are not in the cache yet"


def folder() -> Path:
    """The folder with the jars. Raises `BrokerFailed` with Maven's output."""
    target = _target()
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / "lock").open("w") as lock:
        # One session fetches, others wait; a folder gets its name only when it is complete.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not target.exists():
            _fetch(target)
    return target


def _fetch(target: Path) -> None:
    work = Path(tempfile.mkdtemp(dir=target.parent, prefix="fetch-"))
    try:
        (work / "pom.xml").write_text(POM)
        options = ["-DincludeScope=runtime", f"-DoutputDirectory={work / 'jars'}"]
        run = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(work), "dependency:copy-dependencies", *options],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            raise BrokerFailed(f"Maven could not fetch Kafka {VERSION}:\n{run.stdout}{run.stderr}")
        (work / "jars").rename(target)
    finally:
        shutil.rmtree(work, ignore_errors=True)
