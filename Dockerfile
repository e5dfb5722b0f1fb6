# An image that serves a model: small, not root, and able to run on a read-only file system.
#
#   docker build -t fairmf .
#   docker run --rm --read-only --tmpfs /tmp -p 8080:8080 -v "$PWD/models:/models:ro" fairmf /models/model.fairmf
#
# Compiled kernels are part of the image. They are made for any processor of the architecture (NUMBA_CPU_NAME=generic):
# --build-arg CPU=x86-64-v3 makes them for x86 processors since 2013, on which lists of many users then take a third
# of the time or less; CPU=host for what the building machine has.

FROM python:3.12-slim AS build
ARG CPU=generic
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/fairmf && /opt/fairmf/bin/pip install --no-cache-dir ".[serve,ann]"
RUN export NUMBA_CPU_NAME="$CPU" NUMBA_CPU_FEATURES= \
    && if [ "$CPU" = host ]; then unset NUMBA_CPU_NAME NUMBA_CPU_FEATURES; fi \
    && /opt/fairmf/bin/fairmf warmup /opt/fairmf/kernels

FROM python:3.12-slim
ARG CPU=generic
RUN apt-get update && apt-get install --yes --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin fairmf
COPY --from=build /opt/fairmf /opt/fairmf
ENV PATH=/opt/fairmf/bin:$PATH NUMBA_CACHE_DIR=/opt/fairmf/kernels PYTHONDONTWRITEBYTECODE=1 FAIRMF_CPU=$CPU
USER 10001
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s CMD ["python", "-c", \
    "import urllib.request as r; r.urlopen('http://127.0.0.1:8080/healthz/ready', timeout=2)"]
# A shell sets Numba's processor as at build, and is replaced by the server, which then gets the signals itself.
ENTRYPOINT ["/bin/sh", "-c", "[ \"$FAIRMF_CPU\" = host ] || export NUMBA_CPU_NAME=$FAIRMF_CPU NUMBA_CPU_FEATURES=; exec fairmf serve --host 0.0.0.0 \"$@\"", "fairmf"]
