# docker build -t promptfed --build-arg VERSION=VERSION -f docs/deploy/release.Dockerfile build/release
# puts an archive of make release into an image.
FROM debian:bookworm-slim AS unpacked
ARG VERSION
ARG TARGETARCH
ADD promptfed-${VERSION}-linux-${TARGETARCH}.tar.gz /
RUN mv /promptfed-${VERSION}-linux-${TARGETARCH} /opt/promptfed

FROM debian:bookworm-slim
COPY --from=unpacked /opt/promptfed /opt/promptfed
USER 65534
ENV XDG_CACHE_HOME=/var/lib/promptfed/cache
VOLUME /var/lib/promptfed
ENTRYPOINT ["/opt/promptfed/promptfed"]
