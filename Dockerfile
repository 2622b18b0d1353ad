# An image for the command, the scheduler and the workers of a cluster (docs/cluster.md), so that all have the same
# versions:
#
#     docker build -t REGISTRY/streaming-jsmf . && docker push REGISTRY/streaming-jsmf
#
# The base image and all packages are pinned. To renew them, take the digest that `docker buildx imagetools inspect
# python:3.12-slim` prints, and run the command in the first lines of requirements.lock.
FROM python:3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

# Packages before the source, so that a change of the source does not install them again.
COPY requirements.lock /
RUN pip install --no-cache-dir --require-hashes --only-binary :all: -r /requirements.lock

COPY pyproject.toml README.md LICENSE /source/
COPY streaming_jsmf /source/streaming_jsmf
RUN pip install --no-cache-dir --no-deps --no-build-isolation /source && pip check && rm -r /source

# Compile the numerical loops once, here, and not in every worker that starts. Other types of processors compile again.
ENV NUMBA_CACHE_DIR=/opt/kernels
RUN streaming-jsmf simulate /tmp/corpus --documents 500 --vocabulary-size 100 --topics 5 \
    && streaming-jsmf fit /tmp/corpus /tmp/model --topics 5 \
    && streaming-jsmf transform /tmp/model /tmp/corpus /tmp/shares \
    && rm -r /tmp/* \
    && chmod -R a+rwX /opt/kernels

RUN useradd --create-home topics
USER topics
WORKDIR /home/topics
CMD ["streaming-jsmf", "--help"]
