FROM python:3.11-slim AS build
WORKDIR /src
COPY requirements-build.lock requirements-server.lock ./
RUN python -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --require-hashes -r requirements-build.lock
RUN python -m venv /opt/halftone \
 && /opt/halftone/bin/pip install --no-cache-dir --require-hashes --only-binary :all: -r requirements-server.lock
COPY pyproject.toml README.md LICENSE alembic.ini ./
COPY app ./app
COPY migrations ./migrations
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir dist . \
 && /opt/halftone/bin/pip install --no-cache-dir --no-deps dist/*.whl \
 && cd / && /opt/halftone/bin/python -m app.engine.warming

FROM python:3.11-slim
RUN useradd --uid 10001 --create-home --home-dir /var/lib/halftone halftone \
 && chmod 0700 /var/lib/halftone
COPY --from=build /opt/halftone /opt/halftone
ENV PATH=/opt/halftone/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
ENV HALFTONE_DATA=/var/lib/halftone
WORKDIR /var/lib/halftone
USER halftone
VOLUME /var/lib/halftone
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 \
  CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/readyz', timeout=4)"]
CMD ["halftone", "serve", "--host", "0.0.0.0", "--port", "8000"]
