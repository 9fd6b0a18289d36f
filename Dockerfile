# The image of every stream-dp command: `docker run stream-dp calibrate --help`.

FROM python:3.12-slim AS build
RUN python -m venv /opt/stream-dp
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY stream_dp stream_dp
COPY topologies topologies
RUN /opt/stream-dp/bin/pip install --no-cache-dir '.[worker,jobs,plot]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /app stream-dp
COPY --from=build /opt/stream-dp /opt/stream-dp
ENV PATH=/opt/stream-dp/bin:$PATH PYTHONUNBUFFERED=1
# stream.toml is looked for here.
WORKDIR /app
USER 10001
ENTRYPOINT ["stream-dp"]
CMD ["--help"]
