# `headstart serve` in a container. The model is mounted, and a key is asked for, since the port is open:
#
#     docker build -t headstart .
#     docker run --rm -p 127.0.0.1:8000:8000 -e HEADSTART_API_KEY=... -v /path/to/model:/models:ro headstart
#
# On x86-64 the torch of the usual index has CUDA with it, several gigabytes: `--build-arg TORCH_INDEX=URL`, with the
# address that pytorch.org names for CPUs, takes the small one.
ARG PYTHON=3.13
FROM python:${PYTHON}-slim AS build

# Debian's compiler of the day is as good as another: the kernels are tested with several.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /src
RUN python -m venv /opt/headstart
COPY constraints.txt ./
ARG TORCH_INDEX=
RUN /opt/headstart/bin/pip install --no-cache-dir -c constraints.txt ${TORCH_INDEX:+--index-url "${TORCH_INDEX}"} torch==2.13.0
COPY pyproject.toml hatch_build.py README.md CHANGELOG.md ./
COPY src src
RUN /opt/headstart/bin/pip install --no-cache-dir -c constraints.txt ".[serve]"

FROM python:${PYTHON}-slim

RUN useradd --create-home --uid 1000 headstart
COPY --from=build /opt/headstart /opt/headstart
ENV PATH=/opt/headstart/bin:$PATH
USER 1000
WORKDIR /home/headstart
EXPOSE 8000

# While a model is being loaded, /health answers 503.
HEALTHCHECK --interval=30s --timeout=5s --start-period=10m --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]

# A directory of a model, or of one .gguf file. What follows the image's name on the command line takes its place.
ENTRYPOINT ["headstart", "serve", "--host", "0.0.0.0", "--port", "8000"]
CMD ["--model", "/models"]
