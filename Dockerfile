# dataprep and loaders, with the versions that are tested together.
#
#   docker build -t dataprep .
#   docker run --rm --user "$(id -u):$(id -g)" -v "$PWD:/data" dataprep dataprep convert --src photos
#   docker run --rm --gpus all -v "$PWD:/data" dataprep python /opt/dataprep/scripts/train.py photos-tfrecord
#
# The base has no CUDA: pip installs its libraries with DALI and torch, and the NVIDIA Container Toolkit mounts those of
# the driver.
FROM python:3.12-slim-bookworm

# `video` is for the GPU's hardware JPEG decoder: nvJPEG loads the driver's libnvcuvid.
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility,video \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PYTHONUNBUFFERED=1

WORKDIR /opt/dataprep
COPY LICENSE README.md constraints.txt pyproject.toml ./
COPY manifests manifests
COPY dataprep dataprep
COPY loaders loaders
COPY scripts/train.py scripts/train_reid.py scripts/
RUN pip install -c constraints.txt '.[cloud,sql]' \
    && dataprep --version \
    && useradd --create-home --uid 1000 dataprep

USER 1000
WORKDIR /data
CMD ["dataprep", "--help"]
