#!/bin/bash
# Build kube-apiserver and kube-scheduler from Debian's source into a cache outside the tree.
# Needs golang-go, rsync, jq, dpkg and apt on Debian; about ten minutes of CPU, once. Prints the folder.
set -euo pipefail

RELEASE=${COSTOPT_KUBERNETES_RELEASE:-bookworm}
CACHE=${COSTOPT_KUBERNETES_SERVER:-$HOME/.cache/costopt/kubernetes-1.20.2}
PROGRAMS="kube-apiserver kube-scheduler"
complete() { for each in $PROGRAMS; do [ -x "$CACHE/$each" ] || return 1; done; }
complete && { echo "$CACHE"; exit 0; }
for tool in go rsync jq dpkg-deb apt-get; do
  command -v $tool >/dev/null || { echo "$tool is not installed: apt-get install golang-go rsync jq" >&2; exit 1; }
done

WORK=$(mktemp -d)
trap 'chmod -R u+w "$WORK"; rm -rf "$WORK"' EXIT
mkdir -p "$WORK"/{parts,lists/partial,archives/partial} "$CACHE"
cd "$WORK"
for kind in deb deb-src; do
  echo "$kind [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $RELEASE main"
done >sources.list
APT="apt-get -qq -o Dir::Etc::sourcelist=$WORK/sources.list -o Dir::Etc::sourceparts=$WORK/parts
  -o Dir::State::lists=$WORK/lists -o Dir::Cache=$WORK -o APT::Sandbox::User=root"
$APT update
$APT source --download-only kubernetes
$APT download golang-github-modern-go-reflect2-dev
tar xzf kubernetes_*.orig.tar.gz
dpkg-deb -x golang-github-modern-go-reflect2-dev_*.deb reflect2
cd kubernetes-*/

# The vendored reflect2 1.0.1 crashes with Go >= 1.18 when a custom resource is stored; 1.0.2 does not.
rm vendor/github.com/modern-go/reflect2/*.{go,s}
find "$WORK/reflect2" \( -name '*.go' -o -name '*.s' \) ! -name '*_test.go' \
  -exec cp {} vendor/github.com/modern-go/reflect2/ \;

export CGO_ENABLED=0 GOFLAGS=-p=${COSTOPT_KUBERNETES_COMPILERS:-1} KUBE_GIT_VERSION=v1.20.2 GOMAXPROCS=1
nice -n 10 make WHAT="$(printf 'cmd/%s ' $PROGRAMS)" >&2
for each in $PROGRAMS; do
  install -m 755 "_output/local/go/bin/$each" "$CACHE/$each.new"
  mv "$CACHE/$each.new" "$CACHE/$each"
done
echo "$CACHE"
