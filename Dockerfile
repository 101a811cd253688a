# One image a deployable: docker build --build-arg PACKAGE=working --build-arg PORT=8781 .
# PACKAGE is a folder of services/, or router or cli (with --target tool). `make images` builds all of them.
# BASE has Python 3.11 or newer with venv and is Debian's or made from it.
ARG BASE=python:3.11-slim-bookworm

# What builds: uv, and what makes wheels of our packages.
FROM ${BASE} AS builder
WORKDIR /source
ENV UV_CACHE_DIR=/cache UV_PYTHON_DOWNLOADS=never UV_LINK_MODE=copy UV_SYSTEM_CERTS=true UV_NATIVE_TLS=true \
    PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY tools/bootstrap.lock tools/build.lock tools/
# The secrets are optional: a company's certificate authorities, and settings that name its own package index.
# Nothing of them is kept in a layer.
RUN --mount=type=secret,id=ca,target=/run/ca.pem \
    --mount=type=secret,id=pip,target=/etc/pip.conf \
    if [ -s /run/ca.pem ]; then export PIP_CERT=/run/ca.pem; fi; \
    python3 -m venv /build && /build/bin/pip install --quiet --require-hashes \
      -r tools/bootstrap.lock -r tools/build.lock

# What the package needs, from its own lock: this layer stays until a lock changes.
FROM builder AS locked
ARG PACKAGE
ARG EXTRA=
COPY router/requirements*.lock router/
COPY cli/requirements.lock cli/
COPY services/working/requirements.lock services/working/
COPY services/episodic/requirements.lock services/episodic/
COPY services/semantic/requirements.lock services/semantic/
COPY services/procedural/requirements.lock services/procedural/
RUN --mount=type=cache,id=a2m-uv,target=/cache \
    --mount=type=secret,id=ca,target=/run/ca.pem \
    --mount=type=secret,id=uv,target=/etc/uv/uv.toml \
    if [ -s /run/ca.pem ]; then export SSL_CERT_FILE=/run/ca.pem; fi; \
    folder=services/${PACKAGE}; [ -d "$folder" ] || folder=${PACKAGE}; \
    /build/bin/uv venv --quiet --python python3 /app && \
    /build/bin/uv pip sync --quiet --python /app/bin/python --require-hashes --compile-bytecode \
      "$folder/requirements${EXTRA:+-$EXTRA}.lock"

# Our own packages, which change most often.
FROM locked AS packaged
ARG PACKAGE
COPY libs libs
COPY services services
COPY router router
COPY cli cli
RUN folder=services/${PACKAGE}; [ -d "$folder" ] || folder=${PACKAGE}; \
    for source in libs/protocol libs/retrieval libs/server "$folder"; do \
      /build/bin/uv build --quiet --wheel --no-build-isolation --python /build/bin/python -o /wheels "$source" \
        || exit 1; \
    done; \
    /build/bin/uv pip install --quiet --python /app/bin/python --no-deps --offline --compile-bytecode \
      /wheels/*.whl && \
    rm -f /app/.lock

FROM ${BASE} AS runtime
ARG PACKAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
ARG CREATED=1970-01-01T00:00:00Z
# Procedures live in a git repository, which may have a remote that is reached by ssh.
RUN if [ "${PACKAGE}" = procedural ]; then \
      apt-get update -qq && \
      DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends git openssh-client >/dev/null && \
      rm -rf /var/lib/apt/lists/* /var/cache/apt /var/log/apt /var/log/dpkg.log /var/cache/debconf/*-old; \
    fi
# Volumes mounted on these folders take over their owner.
RUN printf 'a2m:x:10001:\n' >> /etc/group && \
    printf 'a2m:x:10001:10001::/data:/usr/sbin/nologin\n' >> /etc/passwd && \
    for name in service router you metrics postgres valkey qdrant grafana; do mkdir -p "/secrets/$name"; done && \
    mkdir -p /data && chown -R 10001:10001 /data /secrets && chmod 700 /data
COPY --from=packaged /app /app
ENV PATH=/app/bin:$PATH PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1 HOME=/data A2M_PACKAGE=${PACKAGE}
WORKDIR /data
USER 10001:10001
LABEL org.opencontainers.image.title="a2m-${PACKAGE}" \
      org.opencontainers.image.description="A2M Federation: one memory for AI agents (${PACKAGE})" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

# The command line: `docker run IMAGE status`.
FROM runtime AS tool
ENTRYPOINT ["a2m"]

# A server. It is told where to listen and what to use by A2M_<PACKAGE>_... variables.
FROM runtime AS service
ARG PORT
ENV A2M_READY=http://127.0.0.1:${PORT}/readyz
EXPOSE ${PORT}
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=120s --retries=3 CMD ["python", "-m", "a2m_server.ready"]
# The shell gives way to Python, which then gets the signals.
CMD exec python -m "a2m_${A2M_PACKAGE}"
