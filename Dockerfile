# One image for both processes: /fanout (the default) and /dispatcher.
#   docker build --build-arg VERSION="$(git describe --always)" -t fanout .

FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=devel
# CGO off: static, and Go's own resolver, which refuses the disguised addresses
# that the C library's accepts.
RUN CGO_ENABLED=0 go build -trimpath \
    -ldflags "-s -w -X github.com/fanout/fanout/internal/boot.version=${VERSION}" \
    -o /out/ ./cmd/fanout ./cmd/dispatcher

# No shell, no package, no root: what is not there cannot be used.
FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /out/fanout /out/dispatcher /
USER 65532:65532
ENTRYPOINT ["/fanout"]
CMD ["serve"]
