"""`python -m tests.broker`: run a broker, print its "host:port", end with stdin or SIGTERM."""

from __future__ import annotations

import signal
import sys

from tests.broker import BrokerFailed, NoBroker, session_address


def main() -> int:
    # SIGTERM ends the wait below like an exception would, so that the broker is stopped.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with session_address() as address:
            print(address, flush=True)
            sys.stdin.read()
    except (NoBroker, BrokerFailed) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(main())
