# The projector, with the journal's own command beside it. Its file lives in the volume /data.
FROM python:3.13-slim

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
WORKDIR /src
# The dependencies first: a layer that a change to our own code leaves alone.
COPY pyproject.toml constraints.txt ./
RUN python -c 'import tomllib; p = tomllib.load(open("pyproject.toml", "rb"))["project"]; print(*p["dependencies"], *p["optional-dependencies"]["metrics"], sep="\n")' > requirements.txt \
    && pip install -q -r requirements.txt -c constraints.txt
COPY LICENSE README.md ./
COPY journal journal
COPY journal_pytest journal_pytest
COPY projector projector
RUN pip install -q --no-deps .

RUN useradd --uid 10001 --create-home projector && install -d -o projector /data
USER projector
WORKDIR /data
VOLUME /data
ENV JOURNAL_DB=/data/runs.duckdb PYTHONUNBUFFERED=1
# Healthy, too, while it waits for brokers or for room: a restart would mend neither.
HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 \
    CMD ["projector", "health"]
CMD ["projector", "run"]
