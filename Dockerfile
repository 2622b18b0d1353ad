# An image for the command, the scheduler and the workers of a cluster (docs/cluster.md), so that all have the same
# versions:
#
#     docker build -t REGISTRY/streaming-jsmf . && docker push REGISTRY/streaming-jsmf
FROM python:3.12-slim

COPY pyproject.toml README.md LICENSE /source/
COPY streaming_jsmf /source/streaming_jsmf
# bokeh is for the dashboard and performance reports of Dask.
RUN pip install --no-cache-dir "/source[s3,gcs,azure]" "bokeh>=3.1" && rm -r /source

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
