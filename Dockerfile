# The image of stream-dp's commands, `docker run stream-dp calibrate --help`, and as target `jobs` that of one-shot jobs,
# which read files and so are a third larger.
#
# Only what this repository names by digest goes in: the base image, and each package (`make lock` renews the hashes).

FROM python:3.12.12-slim@sha256:f3fa41d74a768c2fce8016b98c191ae8c1bacd8f1152870a3f9f87d350920b7c AS build
WORKDIR /source
COPY deploy/image deploy/image
# What has no wheel for this processor is built with these tools, and pip fetches no others.
RUN python -m venv /opt/build \
    && /opt/build/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r deploy/image/build.txt \
    && /opt/build/bin/pip wheel --no-cache-dir --require-hashes --no-build-isolation --wheel-dir /wheels -r deploy/image/requirements.txt
COPY pyproject.toml setup.py README.md LICENSE ./
COPY stream_dp stream_dp
COPY topologies topologies
ARG CC='/opt/build/bin/python -m ziglang cc'
RUN LDSHARED="$CC -shared" CC="$CC" /opt/build/bin/pip wheel --no-cache-dir --no-build-isolation --no-deps --no-index --wheel-dir /wheels . \
    && python -m venv --without-pip /opt/stream-dp \
    && mkdir /wheels/jobs && mv /wheels/pyarrow-*.whl /wheels/jobs \
    && /opt/build/bin/pip --python /opt/stream-dp/bin/python install --no-cache-dir --no-deps --no-index /wheels/*.whl \
    && /opt/build/bin/pip --python /opt/stream-dp/bin/python install --no-deps --no-index --target /opt/jobs /wheels/jobs/*.whl \
    && find /opt/stream-dp /opt/jobs -type d -name tests -prune -exec rm -r {} + \
    && cd / && /opt/stream-dp/bin/python -c 'import stream_dp.loops'

FROM python:3.12.12-slim@sha256:f3fa41d74a768c2fce8016b98c191ae8c1bacd8f1152870a3f9f87d350920b7c AS common
RUN useradd --system --uid 10001 --home-dir /app stream-dp
COPY --from=build /opt/stream-dp /opt/stream-dp
ENV PATH=/opt/stream-dp/bin:$PATH PYTHONUNBUFFERED=1
# stream.toml is looked for here.
WORKDIR /app
USER 10001
ENTRYPOINT ["stream-dp"]
CMD ["--help"]

FROM common AS jobs
COPY --from=build /opt/jobs /opt/jobs
ENV PYTHONPATH=/opt/jobs

FROM common AS worker
