# Foxhunt in a container with NVRTC, for machines with and without a GPU. CI does not build it.
#   docker build -t foxhunt .
#   docker run --rm --gpus all --user "$(id -u):$(id -g)" -v "$PWD:/data" foxhunt train bars.parquet
# Without a GPU leave `--gpus all` out: the CPU engine runs.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# CUDA is needed neither to build nor to install: driver and NVRTC are found at run time.
RUN cargo build --release --locked --package foxhunt-cli

# The runtime image holds the CUDA runtime libraries, NVRTC among them; the driver comes from the host.
FROM nvidia/cuda:12.9.1-runtime-ubuntu24.04
COPY --from=build /src/target/release/foxhunt /usr/local/bin/foxhunt
# Compiled kernels are kept where any user can write; mount it to keep them longer than the container.
ENV FOXHUNT_CACHE_DIR=/tmp/foxhunt
# Bars, settings and runs.
WORKDIR /data
VOLUME /data
# With `-p 9464:9464` and `train --metrics-addr 0.0.0.0:9464`.
EXPOSE 9464
# SIGTERM saves the run and exits 143; give it time with `docker stop --time 60`.
STOPSIGNAL SIGTERM
ENTRYPOINT ["foxhunt"]
CMD ["train"]
